"""Practice: chosen from what was known in time, the same after a resume."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.episode import Key
from palaestra.core.outcome import Outcome
from palaestra.core.task import Split, TaskSet
from palaestra.learning.curricula.practice import Attempt, Practice, attempts, replayed
from palaestra.learning.curricula.task_sampling import learnability, uniform
from palaestra.learning.data.rewards import Shaping
from tests.learning.made import call, episode

EASY, HARD = TaskSet("easy"), TaskSet("hard")


def tried(step: int, environment: str, task: str, *solved: bool) -> list[Attempt]:
    return [Attempt(Key(f"rl/{step}", 0, i), environment, task, s) for i, s in enumerate(solved)]


def test_without_a_rule_every_step_has_new_tasks() -> None:
    practice = Practice((EASY,), seed=3)
    sampled = [task.id for step in (1, 2, 3) for task in practice.tasks(step, 4, {})]
    assert len(set(sampled)) == 12


def test_fixed_tasks_are_met_again_and_known_by_their_results() -> None:
    practice = Practice((EASY,), seed=3, weigh=uniform, fixed=3)
    sampled = [task for step in range(1, 20) for task in practice.tasks(step, 4, {})]
    assert len({task.id for task in sampled}) == 3
    assert {task.split for task in sampled} == {Split.TRAIN}
    one = sampled[0].id
    past = {1: tried(1, "easy", one, True, False), 2: tried(2, "easy", one, True)}
    results = sorted(h.results for h in practice.histories(past))
    assert results == [(), (), (1.0, 0.0, 1.0)]


def test_levels_are_chosen_where_there_is_something_to_learn() -> None:
    practice = Practice((EASY, HARD), seed=3, weigh=learnability)
    past = {
        1: tried(1, "easy", "train/0", *[True] * 30),
        2: tried(2, "hard", "train/0", *[True, False] * 15),
    }
    sampled = [t.environment for step in range(3, 40) for t in practice.tasks(step, 4, past)]
    assert sampled.count("hard") > 3 * sampled.count("easy") > 0
    again = [t.environment for step in range(3, 40) for t in practice.tasks(step, 4, past)]
    assert again == sampled


def test_the_tasks_of_a_level_are_always_new() -> None:
    practice = Practice((EASY, HARD), seed=3, weigh=uniform)
    sampled = [(t.environment, t.id) for step in range(1, 9) for t in practice.tasks(step, 4, {})]
    assert len(set(sampled)) == 32


def group(step: int, *outcomes: Outcome):
    return [
        replace(
            episode([call(0, None, [1], [2, 3])], member=i, outcome=outcome),
            key=Key(f"rl/{step}", 0, i),
        )
        for i, outcome in enumerate(outcomes)
    ]


@pytest.mark.parametrize("fresh_success", [False, True])
def test_a_stored_success_stands_in_only_for_a_hopeless_group(fresh_success: bool) -> None:
    earlier = group(1, Outcome.success(), Outcome.failure())
    last = Outcome.success() if fresh_success else Outcome.failure()
    now = group(2, Outcome.failure(), Outcome.failure(), last)
    recall = {e.key: e for e in earlier}.get
    past = {1: attempts(earlier)}
    found = replayed(now, past, recall, Shaping(5), "policy", seed=0)
    assert [e.key for e in found] == [e.key for e in now]
    replaced = [a is not b for a, b in zip(found, now, strict=True)]
    assert replaced == [not fresh_success, False, False]
    if not fresh_success:
        assert found[0].outcome.solved
        assert found[0].calls == earlier[0].calls  # log-probabilities as they were sampled


def test_what_was_never_solved_cannot_be_replayed() -> None:
    now = group(2, Outcome.failure(), Outcome.failure())
    past = {1: attempts(group(1, Outcome.failure(), Outcome.failure()))}
    assert replayed(now, past, {}.get, Shaping(5), "policy", seed=0) == now
