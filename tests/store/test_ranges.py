"""Parts of episodes: any stretch equals the same stretch of the whole, however it is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.core.episode import Episode, Key, Step
from palaestra.store.database import Database
from palaestra.store.header import events_in_order
from palaestra.store.ranges import (
    call_facts,
    events_between,
    group_episodes,
    header_of,
    headers_of,
    latest_steps,
    phase_headers,
    position_after,
    reward_of,
    span_of,
    step_facts,
    turn_events,
)
from tests.store.samples import call, episode

FIRST, SECOND = Key("test", 0, 0), Key("test", 0, 1)


def talkative(key: Key) -> Episode:
    """Two calls before each step, and one after the last."""
    made = episode(key, 5)
    calls = tuple(call(i, i - 1 if i else None) for i in range(11))
    return replace(
        made, calls=calls, steps=tuple(replace(s, call=2 * s.index + 1) for s in made.steps)
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """`FIRST` stands together, `SECOND` and a third are interleaved."""
    opened = Database.open(tmp_path / "run.sqlite")
    opened.finish(talkative(FIRST))
    others = [talkative(SECOND), talkative(Key("other", 4))]
    for pair in zip(*(events_in_order(one) for one in others), strict=True):
        for one, event in zip(others, pair, strict=True):
            opened.append(one.key, event)
    for one in others:
        opened.finish(one)
    yield opened
    opened.close()


def test_events_that_stand_together_are_a_range_and_others_a_list(database: Database) -> None:
    first, second = span_of(database, FIRST), span_of(database, SECOND)
    assert first is not None and second is not None
    assert isinstance(first.ids, range) and not isinstance(second.ids, range)
    assert len(first.ids) == len(second.ids) == 16
    assert (second.calls, second.steps) == (11, 5)


@pytest.mark.parametrize("key", [FIRST, SECOND])
def test_any_stretch_is_that_of_the_whole(database: Database, key: Key) -> None:
    span, whole = span_of(database, key), database.past(key)
    assert span is not None
    for start in range(17):
        for stop in range(start, 18):
            assert events_between(database, span, start, stop) == whole[start:stop]


@pytest.mark.parametrize("key", [FIRST, SECOND])
def test_a_turn_is_a_step_with_the_calls_before_it(database: Database, key: Key) -> None:
    span = span_of(database, key)
    assert span is not None
    assert [position_after(database, span, n) for n in range(7)] == [0, 3, 6, 9, 12, 15, 16]
    turn = turn_events(database, span, 2, 3)
    assert [(type(e).__name__, e.index) for e in turn] == [("Call", 4), ("Call", 5), ("Step", 2)]
    last = turn_events(database, span, 5, 6)
    assert [(type(e).__name__, e.index) for e in last] == [("Call", 10)]
    assert turn_events(database, span, 0, 99) == database.past(key)
    assert turn_events(database, span, 7, 9) == []


def test_a_header_is_the_episode_without_its_events(database: Database) -> None:
    whole = database.episode(SECOND)
    assert whole is not None
    assert header_of(database, SECOND) == replace(whole, calls=(), steps=())
    assert [found.key for found in headers_of(database, "test", 0)] == [FIRST, SECOND]
    assert len(phase_headers(database, "other")) == 1
    assert group_episodes(database, "test", 0) == database.episodes("test")
    assert reward_of(database, FIRST) == 2.5


def test_what_is_not_there_is_none(database: Database) -> None:
    missing = Key("test", 7)
    assert span_of(database, missing) is None
    assert header_of(database, missing) is None and reward_of(database, missing) is None
    assert group_episodes(database, "test", 7) == []


def test_an_episode_in_progress_has_a_span_and_no_header(database: Database) -> None:
    key = Key("running", 0)
    database.append(key, call(0))
    span = span_of(database, key)
    assert span is not None and len(span.ids) == 1
    assert header_of(database, key) is None


def test_facts_are_those_of_the_steps_and_calls_even_where_a_reward_is_no_number(
    database: Database,
) -> None:
    made = episode(Key("odd", 0))
    odd = replace(made.steps[1].transition, reward=math.nan, valid=False)
    database.finish(replace(made, steps=(made.steps[0], replace(made.steps[1], transition=odd))))
    span = span_of(database, made.key)
    assert span is not None
    facts = list(step_facts(database, span))
    assert [(f.step, f.progress, f.valid) for f in facts] == [(0, 0.25, True), (1, 0.25, False)]
    assert math.isnan(facts[1].reward)
    assert [(c.call, c.parent, c.policy) for c in call_facts(database, span)] == [
        (0, None, "resident"),
        (1, 0, "resident"),
        (2, 1, "resident"),
    ]


def test_the_latest_steps_of_each_episode_of_a_phase_are_in_order(database: Database) -> None:
    found = latest_steps(database, "test", 7)
    assert set(found) == {FIRST, SECOND}
    for steps in found.values():
        assert all(isinstance(step, Step) for step in steps)
        assert [step.index for step in steps] == [3, 4]
