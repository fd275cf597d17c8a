"""The database: what goes in comes out, equal and in order."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import (
    AgentFault,
    EnvironmentFault,
    InfrastructureFault,
    InputError,
    RunVersionMismatch,
)
from palaestra.core.message import ToolCall, assistant
from palaestra.core.outcome import Outcome
from palaestra.store.codec import encode_event, pack_floats, pack_integers, unpack
from palaestra.store.database import Database
from palaestra.store.header import events_in_order
from tests.store import samples

KEY = Key("rl/1", 4, 2)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "run.sqlite")
    yield database
    database.close()


def run_episode(database: Database, episode: Episode) -> None:
    """Store an episode as a session and its scheduler do."""
    for event in events_in_order(episode):
        database.append(episode.key, event)
    database.finish(episode)


# ── round trips ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One database for many examples, because making one takes longer than using it."""
    database = Database.open(tmp_path_factory.mktemp("shared") / "run.sqlite")
    yield database
    database.close()


@settings(deadline=None)
@given(episode=samples.episodes, journaled=st.booleans())
def test_an_episode_comes_back_equal_and_its_numbers_bit_for_bit(
    shared: Database, episode: Episode, journaled: bool
) -> None:
    shared.forget(episode.key)
    if journaled:
        run_episode(shared, episode)
    else:
        shared.finish(episode)
    back = shared.episode(episode.key)
    assert back == episode
    assert repr(back) == repr(episode)  # tells -0.0 from 0.0, and 1 from 1.0 and True


@given(st.lists(st.floats() | st.floats(width=32)))
def test_packed_floats_keep_every_bit(values: list[float]) -> None:
    back = unpack(pack_floats(values))
    assert struct.pack(f"{len(values)}d", *back) == struct.pack(f"{len(values)}d", *values)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**17)))
def test_packed_integers_are_exact(values: list[int]) -> None:
    assert unpack(pack_integers(values)) == tuple(values)


def test_numbers_are_packed_as_narrowly_as_is_exact() -> None:
    assert len(pack_integers([1, 49_151])) == 1 + 2 * 2
    assert len(pack_integers([1, 151_000])) == 1 + 2 * 4
    assert len(pack_floats([-0.5, -1.25])) == 1 + 2 * 4
    assert len(pack_floats([-0.1])) == 1 + 8


# ── the journal ──────────────────────────────────────────────────────────────


def test_the_past_of_an_episode_is_its_events_in_order(database: Database) -> None:
    events = events_in_order(samples.episode(KEY))
    for event in events:
        database.append(KEY, event)
        database.append(replace(KEY, member=9), event)
    assert database.past(KEY) == events
    assert database.past(Key("rl/1", 0)) == []


def test_an_unfinished_episode_has_a_past_and_is_no_episode(database: Database) -> None:
    database.append(KEY, samples.call(0))
    assert database.episode(KEY) is None
    assert database.episodes("rl/1") == []
    assert database.summaries() == []


def test_forgetting_drops_one_episode_and_no_other(database: Database) -> None:
    other = replace(KEY, member=3)
    run_episode(database, samples.episode(KEY))
    run_episode(database, samples.episode(other))
    database.forget(KEY)
    assert database.past(KEY) == []
    assert database.episode(KEY) is None
    assert database.episode(other) == samples.episode(other)


def test_calls_and_steps_are_stored_once(database: Database, tmp_path: Path) -> None:
    run_episode(database, samples.episode(KEY))
    with sqlite3.connect(tmp_path / "run.sqlite") as raw:
        assert raw.execute("SELECT count(*) FROM event").fetchone() == (6,)
        assert "go forward" not in str(raw.execute("SELECT * FROM episode").fetchall())


def test_an_episode_that_ran_without_a_journal_is_stored_whole(database: Database) -> None:
    database.finish(samples.episode(KEY))
    assert database.past(KEY) == events_in_order(samples.episode(KEY))


def test_finishing_again_replaces_the_episode_and_keeps_its_position(database: Database) -> None:
    first, second = Key("base", 0), Key("rl", 0)
    database.finish(samples.episode(first))
    database.finish(samples.episode(second))
    shorter = replace(samples.episode(first, turns=1), outcome=Outcome.failure())
    database.finish(shorter)
    assert database.episodes("base") == [shorter]
    assert database.phases() == ["base", "rl"]


def test_a_value_that_is_not_json_is_the_error_of_its_maker(database: Database) -> None:
    step = samples.step(0)
    rubbish = Transition(Observation("x"), info={"grid": object()})
    with pytest.raises(EnvironmentFault, match="step 0 cannot be recorded"):
        database.append(KEY, replace(step, transition=rubbish))
    with pytest.raises(AgentFault, match="step 0 cannot be recorded"):
        database.append(KEY, replace(step, action=Action("", ToolCall("f", {"x": object()}))))
    with pytest.raises(InfrastructureFault, match="call 0 of 'resident' cannot be recorded"):
        database.append(KEY, replace(samples.call(0), reply=assistant("\udc80")))
    assert database.past(KEY) == []


# ── listings, metrics, documents ─────────────────────────────────────────────


def test_episodes_of_a_phase_are_ordered_by_group_and_member(database: Database) -> None:
    ordered = [Key("rl/1", group, member) for group in (0, 2, 10) for member in (0, 1)]
    for key in reversed(ordered):
        run_episode(database, samples.episode(key))
    run_episode(database, samples.episode(Key("rl/10", 0)))
    assert [episode.key for episode in database.episodes("rl/1")] == ordered


def test_summaries_of_a_prefix_stand_in_the_order_of_phases(database: Database) -> None:
    for phase in ("rl/2", "base", "rl/10"):
        for group in (1, 0):
            run_episode(database, samples.episode(Key(phase, group)))
    found = database.summaries("rl/")
    assert [str(s.key) for s in found] == ["rl/2/0.0", "rl/2/1.0", "rl/10/0.0", "rl/10/1.0"]
    assert len(database.summaries()) == 6
    one = found[0]
    assert (one.task, one.environment, one.outcome) == (
        "train/1",
        "babyai/GoTo",
        Outcome.success(),
    )
    assert (one.reward, one.turns, one.sampled_tokens) == (1.5, 3, 6)


def test_a_summary_shows_an_undefined_reward_as_undefined(database: Database) -> None:
    step = samples.step(0)
    lost = replace(step, transition=replace(step.transition, reward=float("nan")))
    database.finish(replace(samples.episode(KEY), steps=(lost,)))
    assert database.summaries()[0].reward != database.summaries()[0].reward


def test_metrics_of_a_step_are_replaced_when_it_is_done_again(database: Database) -> None:
    database.add_metrics("rl", 10, {"loss": 0.1, "old": 1})
    database.add_metrics("rl", 2, {"loss": float("-inf")})
    database.add_metrics("rl", 10, {"loss": 5e-324})
    database.add_metrics("rl/x", 1, {"loss": 1.0})
    assert database.metrics("rl") == [(2, {"loss": float("-inf")}), (10, {"loss": 5e-324})]
    assert database.metrics("none") == []


@settings(deadline=None)
@given(samples.json_values)
def test_a_document_comes_back_equal(shared: Database, document: object) -> None:
    shared.put("recipe", {"old": 1})
    shared.put("recipe", document)
    assert repr(shared.get("recipe")) == repr(document)
    assert shared.get("report") is None


def test_documents_are_found_by_the_beginning_of_their_names(tmp_path: Path) -> None:
    with closing(Database.open(tmp_path / "run.sqlite")) as database:
        for name in ("a/x/1", "a/x/2", "a/y", "a/x", "b", "a_x/3", "a/%"):
            database.put(name, name)
        assert database.documents("a/x/") == {"1": "a/x/1", "2": "a/x/2"}
        assert database.documents("a/%") == {"": "a/%"}
        assert database.documents("c") == {}


# ── opening ──────────────────────────────────────────────────────────────────


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "run.sqlite")
    run_episode(database, samples.episode(KEY))
    database.close()
    database = Database.open(tmp_path / "run.sqlite", readonly=True)
    assert database.episodes("rl/1") == [samples.episode(KEY)]
    database.close()


def test_another_format_is_refused_with_both_versions_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    Database.open(path).close()
    raw = sqlite3.connect(path)
    raw.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    raw.execute("UPDATE meta SET value = '7.5.0' WHERE name = 'palaestra'")
    raw.commit()
    raw.close()
    for readonly in (False, True):
        with pytest.raises(RunVersionMismatch) as caught:
            Database.open(path, readonly=readonly)
        for part in (str(path), "format 99", "format 3", "pip install palaestra==7.5.0"):
            assert part in str(caught.value)


def test_what_is_no_database_of_a_run_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but longer than the header of one" * 20)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE t (x)").connection.close()
    for name in ("notes.txt", "other.sqlite", "missing.sqlite"):
        with pytest.raises(InputError, match=name):
            Database.open(tmp_path / name, readonly=True)
    for name in ("notes.txt", "other.sqlite", "no/folder.sqlite"):
        with pytest.raises(InputError, match=name):
            Database.open(tmp_path / name)


def test_a_reader_sees_all_that_was_written_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    Database.open(path).close()
    writer = samples.python(
        """
        import sys
        from pathlib import Path
        from palaestra.core.episode import Key
        from palaestra.store.database import Database
        from tests.store import samples

        database = Database.open(Path(sys.argv[1]))
        for index in range(3000):
            database.append(Key("rl", 0), samples.step(index))
            if index % 100 == 0:
                print(index, flush=True)
        """,
        str(path),
    )
    assert writer.stdout is not None
    reader = Database.open(path, readonly=True)
    for line in writer.stdout:
        seen = reader.past(Key("rl", 0))
        assert len(seen) > int(line)
        assert seen[-1] == samples.step(len(seen) - 1)
    assert writer.wait() == 0
    assert len(reader.past(Key("rl", 0))) == 3000
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.put("recipe", {})
    reader.close()


def test_tokens_are_stored_packed_and_not_in_the_json_as_well() -> None:
    row = encode_event(samples.call(0))
    assert {"prompt", "completion", "logprobs", "entropies"}.isdisjoint(json.loads(row.body))
    assert unpack(row.prompt or b"") == samples.call(0).prompt
