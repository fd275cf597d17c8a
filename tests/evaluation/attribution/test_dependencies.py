"""Dependency tracing: from where an action's words came, and where the walk back ends."""

from __future__ import annotations

import pytest

from palaestra.evaluation.attribution.base import Ending
from palaestra.evaluation.attribution.dependencies import (
    first_refusal,
    ignored,
    last_turn,
    root_cause,
    trace,
)
from tests.evaluation.attribution.worlds import LOOKUP, PARCEL, RIGHT, roll_out


def test_arguments_come_from_the_latest_observation_that_holds_them() -> None:
    sources = trace(roll_out(RIGHT)).sources
    assert [[source.observation for source in of] for of in sources] == [[0], [1], [2], []]


def test_parents_are_the_turns_whose_results_were_used() -> None:
    graph = trace(roll_out(RIGHT))
    assert [graph.parents(turn) for turn in range(4)] == [[], [0], [1], [2]]


def test_the_walk_goes_past_the_symptom_to_the_invented_word() -> None:
    episode = roll_out(
        (LOOKUP, "parcel('c-1')", "parcel('{number}')", "send('p-4711')", "finish()")
    )
    found = root_cause(episode)
    assert (found.ending, found.exact) == (Ending.TURN, False)
    assert trace(episode).invented(1) == ["c-1"]
    assert trace(episode).invented(3) == ["p-4711"]


def test_a_wrong_name_is_blamed_rather_than_what_followed_from_it() -> None:
    """The number and the parcel that follow are right for the wrong customer."""
    episode = roll_out(
        ("lookup('Zoe')", "lookup('Ada')", "parcel('{number}')", "send('{parcel}')"), seed=1
    )
    graph = trace(episode)
    assert graph.invented(0) == ["zoe"]
    assert graph.parents(3) == [2]


def test_words_of_the_worlds_own_language_are_never_invented() -> None:
    episode = roll_out(("lookup('Zoe')",))
    assert trace(episode).invented(0) == ["zoe"]
    assert trace(episode, language="Try Zoe.").invented(0) == []


def test_names_of_the_task_that_no_action_used_are_reported() -> None:
    assert ignored(roll_out(("lookup('Zoe')", "status()"))) != []
    assert ignored(roll_out(RIGHT)) == []


def test_an_episode_without_turns_has_no_root() -> None:
    assert root_cause(roll_out(())).ending is Ending.UNKNOWN


@pytest.mark.parametrize(
    ("actions", "first", "last"),
    [((LOOKUP, "parcel('c-1')", PARCEL), 1, 2), ((LOOKUP, PARCEL), 1, 1)],
)
def test_the_baselines_name_the_first_refusal_and_the_last_turn(
    actions: tuple[str, ...], first: int, last: int
) -> None:
    episode = roll_out(actions)
    assert (first_refusal(episode).turn, last_turn(episode).turn) == (first, last)
