"""Traces: which recorded episodes become trajectories, and with whose rewards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.outcome import Outcome, Owner
from palaestra.store.database import Database
from palaestra.training.trace import documents, read_trace, turn_limit, turn_texts
from tests.store import samples

RECIPE = {
    "environment": {"id": "babyai/GoTo", "turns": 10},
    "rl": {"turn_cost": 0.5, "invalid_cost": 0.1, "progress_reward": 0.0},
}
BROKEN = Outcome.error("hang", Owner.ENVIRONMENT)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.open(tmp_path / "run.sqlite")
    database.put("recipe", RECIPE)
    yield database
    database.close()


def make_episode(
    phase: str, group: int, member: int, turns: int = 3, policy: str = "policy"
) -> Episode:
    episode = samples.episode(Key(phase, group, member), turns)
    calls = tuple(replace(call, policy=policy) for call in episode.calls)
    return replace(episode, calls=calls)


def store(database: Database, *episodes: Episode) -> None:
    for episode in episodes:
        database.finish(episode)


def test_rewards_are_those_of_the_run_s_recipe(database: Database) -> None:
    store(database, make_episode("rl/1", 0, 0), make_episode("rl/1", 0, 1, turns=5))
    trace = read_trace(database, "rl/1")
    assert (trace.policy, trace.environment, trace.left_out) == ("policy", "babyai/GoTo", 0)
    assert [t.total for t in trace.batch] == pytest.approx([1 - 0.5 * 3 / 10, 1 - 0.5 * 5 / 10])


def test_what_broke_and_what_is_then_alone_is_left_out(database: Database) -> None:
    store(
        database,
        make_episode("rl/1", 0, 0),
        replace(make_episode("rl/1", 0, 1), outcome=BROKEN),
        *(make_episode("rl/1", 1, m) for m in range(2)),
        replace(make_episode("rl/1", 1, 2), calls=()),
    )
    trace = read_trace(database, "rl/1")
    assert [str(t.key) for t in trace.batch] == ["rl/1/1.0", "rl/1/1.1"]
    assert trace.left_out == 3


def test_rollouts_stay_where_none_has_siblings(database: Database) -> None:
    store(database, *(make_episode("test/rl", group, 0) for group in range(3)))
    assert len(read_trace(database, "test/rl").batch) == 3


def test_a_limit_counts_groups_that_remain(database: Database) -> None:
    store(
        database,
        make_episode("rl/1", 0, 0),
        *(make_episode("rl/1", g, m) for g in (4, 7) for m in range(2)),
    )
    assert {t.key.group for t in read_trace(database, "rl/1", limit=1).batch} == {4}


def test_greedy_rollouts_beside_an_rl_phase_are_read_with_it(database: Database) -> None:
    store(
        database,
        *(make_episode("rl/2", 0, m) for m in range(2)),
        make_episode("greedy/2", 0, 0, turns=4),
    )
    store(database, *(make_episode("rl/3", 0, m) for m in range(2)))
    found = [t.greedy for t in read_trace(database, "rl/2").batch]
    assert found == [pytest.approx(1 - 0.5 * 4 / 10)] * 2
    assert [t.greedy for t in read_trace(database, "rl/3").batch] == [None, None]


def test_words_are_those_of_each_turn(database: Database) -> None:
    store(database, make_episode("rl/1", 0, 0), make_episode("rl/1", 0, 1))
    (first, second) = turn_texts(read_trace(database, "rl/1"))
    assert [(t.observation, t.reply) for t in first] == [
        (f"turn {k}", "go forward") for k in range(3)
    ]
    assert first == second


def test_episodes_of_an_evaluation_belong_to_the_main_speaker(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "run.sqlite")
    database.put("recipe", {"command": "eval", "environment": "babyai/GoTo", "turn_limit": 12})
    store(database, make_episode("eval/test", 0, 0, policy="some/model"))
    trace = read_trace(database, "eval/test")
    assert (trace.policy, trace.shaping.most_turns) == ("some/model", 12)
    database.close()


def test_a_phase_without_recorded_tokens_is_refused(database: Database) -> None:
    store(database, make_episode("rl/1", 0, 0, policy="somebody else"))
    with pytest.raises(InputError, match="recorded tokens of 'policy'"):
        read_trace(database, "rl/1")


def test_the_turn_limit_travels_with_an_export(database: Database) -> None:
    assert turn_limit(database, "babyai/GoTo") == 10
    kept = documents(database)
    assert kept["turn_limits"] == {"babyai/GoTo": 10}
    assert kept["recipe"] == RECIPE
    assert turn_limit(database, "babyai/GoToObjS4") == 5  # the world's own
