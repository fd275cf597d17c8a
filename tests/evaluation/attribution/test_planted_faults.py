"""Planted faults: how often each method names the turn that was spoilt."""

from __future__ import annotations

import random

import pytest

from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.task import Split, TaskSet
from palaestra.environments.registry import make
from palaestra.evaluation.attribution.counterfactual import largest_drop, losing_turn
from palaestra.evaluation.attribution.dependencies import last_turn, root_cause
from palaestra.evaluation.attribution.planted_faults import (
    Method,
    Planted,
    fresh_tasks,
    plant,
    planted,
    precision,
    reference,
    references,
)
from palaestra.evaluation.attribution.state_values import oracle_values, random_values
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory, TurnReplay
from tests.evaluation.attribution.worlds import worlds

ORACLE: Method = lambda case, replay: losing_turn(  # noqa: E731
    case.episode, oracle_values(replay, case.turns)
)
CHANCE: Method = lambda case, replay: largest_drop(  # noqa: E731
    case.episode, random_values(replay, case.turns, 16), "chance"
)
WORDS: Method = lambda case, replay: root_cause(  # noqa: E731
    case.episode, replay.env.instructions
)
LAST: Method = lambda case, replay: last_turn(case.episode)  # noqa: E731


def faulty(
    environment: str, count: int, slack: int | None, made: EnvironmentFactory = make
) -> list[Planted]:
    return planted(made, fresh_tasks(environment, count, made), slack=slack)


@pytest.mark.parametrize(
    ("environment", "count", "slack"),
    [
        ("probe/umbrella-8", 12, None),  # only the first choice matters, and it is final
        ("probe/sea-6", 12, None),  # who errs once never gets to the bottom
        ("babyai/GoToLocalS5N2", 8, 0),  # no turn may be wasted
        ("textworld/coin-easy", 3, 0),
    ],
)
def test_the_oracle_names_every_error_that_cannot_be_undone(
    environment: str, count: int, slack: int | None
) -> None:
    cases = faulty(environment, count, slack)
    assert len(cases) >= count * 2 // 3
    found = precision(make, cases, {"oracle": ORACLE})["oracle"]
    assert (found.right.mean, found.silent) == (1.0, 0)


def test_the_oracle_names_every_error_in_a_world_of_tools() -> None:
    cases = faulty("parcels", 16, 0, worlds)
    found = precision(worlds, cases, {"oracle": ORACLE, "words": WORDS, "last": LAST})
    assert found["oracle"].right.mean == 1.0
    assert found["words"].right.mean > found["last"].right.mean


def test_the_umbrella_is_always_lost_on_the_first_day() -> None:
    """Known from the world's rules, not from any method."""
    assert {case.turn for case in faulty("probe/umbrella-8", 8, None)} == {0}


def test_chance_finds_the_first_day_too_and_the_last_turn_never_is_it() -> None:
    cases = faulty("probe/umbrella-8", 8, None)
    found = precision(make, cases, {"chance": CHANCE, "last": LAST})
    assert found["chance"].right.mean >= 0.9
    assert found["last"].right.mean == 0.0


def test_up_to_the_error_every_action_is_the_oracles() -> None:
    for case in faulty("babyai/GoToLocalS5N2", 4, 0):
        plan = reference(make("babyai/GoToLocalS5N2"), case.episode.task)
        done = [step.action for step in case.episode.steps]
        assert done[: case.turn] == plan[: case.turn]
        assert done[case.turn] != plan[case.turn]
        assert not case.episode.outcome.solved


def test_planting_is_reproducible() -> None:
    first, second = (faulty("probe/sea-4", 4, None) for _ in range(2))
    assert [c.episode.steps for c in first] == [c.episode.steps for c in second]


def test_a_recorded_error_can_be_replayed() -> None:
    for case in faulty("parcels", 4, 0, worlds):
        with TurnReplay.of(case.episode, worlds) as replay:
            replay.at(len(case.episode.steps))


def test_a_world_without_an_oracle_is_refused() -> None:
    task = TaskSet("minigrid/Empty-5x5").task(Split.TRAIN, 0)
    with pytest.raises(CapabilityMissing, match="no oracle"):
        plant(make("minigrid/Empty-5x5"), task, random.Random(0), 0)


def test_no_case_is_no_precision() -> None:
    with pytest.raises(InputError, match="--slack 0"):
        precision(make, [], {"last": LAST})


def test_references_are_the_plans_of_the_tasks_that_the_oracle_solves() -> None:
    tasks = fresh_tasks("parcels", 3, worlds)
    found = references(worlds, tasks)
    assert [len(found[task.id]) for task in tasks] == [4, 4, 4]
