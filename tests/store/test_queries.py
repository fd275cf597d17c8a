"""Questions about many episodes agree with reading all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Outcome, Owner
from palaestra.store.database import Database
from palaestra.store.queries import Filter, Queries, parse_key
from tests.viewer.stores import OUTCOMES, plain

PHASES = ("rl/1", "rl/10", "rl", "test/rl")
EPISODES = [
    plain(Key(PHASES[n % 4], n // 8, n % 8), number=n, saw=f'room {n} "é"') for n in range(64)
]


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queries]:
    database = Database.open(tmp_path_factory.mktemp("store") / "run.sqlite")
    for episode in EPISODES:
        database.finish(episode)
    yield Queries(database)
    database.close()


@pytest.mark.parametrize(
    ("filter", "holds"),
    [
        (Filter(), lambda e: True),
        (Filter(phase="rl/1"), lambda e: e.key.phase == "rl/1"),
        (Filter(phase="rl"), lambda e: e.key.phase in ("rl", "rl/1", "rl/10")),
        (Filter(phase="rl/"), lambda e: e.key.phase in ("rl", "rl/1", "rl/10")),
        (Filter(solved=True), lambda e: e.outcome.solved),
        (Filter(solved=False), lambda e: not e.outcome.solved),
        *((Filter(outcome=str(o)), lambda e, o=o: str(e.outcome) == str(o)) for o in OUTCOMES),
        (Filter(outcome="truncated"), lambda e: str(e.outcome).startswith("truncated")),
        (Filter(task="T/1"), lambda e: "t/1" in e.task.id),
        (Filter(environment="%"), lambda e: False),
        (Filter(text='ROOM 7 "'), lambda e: 'room 7 "' in e.observation.text),
        (Filter(text="é"), lambda e: True),
        (Filter(agent="dir"), lambda e: e.agent == "direct"),
        (Filter(bounds=(("reward", ">=", 1.5),)), lambda e: e.reward >= 1.5),
        (
            Filter(bounds=(("turns", "<", 4), ("tokens", "=", 6)), solved=True),
            lambda e: e.outcome.solved,
        ),
        (Filter(keys=frozenset({EPISODES[3].key})), lambda e: e is EPISODES[3]),
        (Filter(keys=frozenset()), lambda e: False),
    ],
)
def test_a_filter_chooses_what_it_says(queries: Queries, filter: Filter, holds: object) -> None:
    assert callable(holds)
    found = [row.summary.key for row in queries.rows(queries.ids(filter).ids)]
    assert found == [e.key for e in EPISODES if holds(e)]


@pytest.mark.parametrize(
    ("sort", "measure"),
    [
        ("finished", lambda e: EPISODES.index(e)),
        ("reward", lambda e: e.reward),
        ("task", lambda e: e.task.id),
        ("episode", lambda e: (e.key.phase, e.key.group, e.key.member)),
    ],
)
def test_an_order_turns_round_with_its_sign(queries: Queries, sort: str, measure: object) -> None:
    assert callable(measure)
    by_key = {e.key: e for e in EPISODES}
    up = [measure(by_key[r.summary.key]) for r in queries.rows(queries.ids(Filter(), sort).ids)]
    assert up == sorted(up)
    assert (
        queries.ids(Filter(), f"-{sort}").ids.tolist()
        == queries.ids(Filter(), sort).ids[::-1].tolist()
    )


def test_a_question_ends_when_its_time_is_up(queries: Queries, tmp_path: Path) -> None:
    database = Database.open(tmp_path / "run.sqlite")
    rows = [(f"p{n}", n) for n in range(20_000)]
    database._connection.executemany(
        'INSERT INTO episode (phase, "group", member, task, agent, outcome, usage, progress,'
        " labels, task_id, environment, reward, turns, sampled_tokens)"
        " VALUES (?, ?, 0, '{}', '', '{}', '{}', '0', '{}', '', '', 0, 0, 0)",
        rows,
    )
    found = Queries(database).ids(Filter(text="nowhere"), seconds=0.0)
    assert not found.complete and len(found.ids) < len(rows)
    assert Queries(database).ids(Filter(), seconds=60.0).complete
    database.close()


def test_standings_count_only_what_the_agent_did(queries: Queries) -> None:
    by_task: dict[tuple[str, int], list[Episode]] = {}
    for episode in EPISODES:
        by_task.setdefault((episode.key.phase, episode.key.group), []).append(episode)
    standings = queries.standings()
    assert [(s.phase, s.group) for s in standings] == sorted(by_task)
    for found in standings:
        of = by_task[found.phase, found.group]
        scored = [e for e in of if e.outcome.scored]
        assert (found.episodes, found.scored) == (len(of), len(scored))
        assert found.solved == sum(e.outcome.solved for e in of)
        assert found.reward == pytest.approx(sum(e.reward for e in scored))
    assert {s.phase for s in queries.standings("rl/1")} == {"rl/1"}


def test_an_agents_own_error_is_scored(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "run.sqlite")
    for number, owner in enumerate(Owner):
        made = plain(Key("p", 0, number))
        object.__setattr__(made, "outcome", Outcome.error("odd", owner))
        database.finish(made)
    (found,) = Queries(database).standings()
    assert (found.episodes, found.scored, found.solved) == (3, 1, 0)
    database.close()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("test/rl/17.0", Key("test/rl", 17)),
        ("rl/1/2.3", Key("rl/1", 2, 3)),
        ("rl/17", Key("rl", 17)),
        ("17", None),
        ("rl/x.1", None),
        ("rl/1.", Key("rl", 1)),
        ("rl/²", None),
        ("rl/" + "9" * 40, None),
        ("", None),
    ],
)
def test_keys_are_read_as_they_print(text: str, key: Key | None) -> None:
    assert parse_key(text) == key
