"""Consolidation: the policy imitates what it once did right, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.learning.compute.packing import Trained
from palaestra.learning.curricula.practice import attempts
from palaestra.learning.loop.consolidation import ConsolidationPlan, consolidate
from palaestra.learning.loop.phases import entropulse
from tests.learning.made import call, episode, learner_of, tiny

PLAN = ConsolidationPlan(entropulse(rl_steps=1, sft_steps=1), batch=4, learning_rate=1e-2)


def roll_out(step: int, group: int, member: int, word: int, solved: bool) -> Episode:
    outcome = Outcome.success() if solved else Outcome.failure()
    made = episode([call(0, None, [1, 3], [word, 0])], outcome=outcome)
    task = Task(f"train/{group}", "made", group)
    return replace(made, key=Key(f"rl/{step}", group, member), task=task)


def believed(learner, word: int) -> float:
    """The probability of the first word of a reply."""
    (lp,) = learner.logprobs([Trained([1, 3, word], [False, False, True])])
    return float(lp[0])


def test_only_what_succeeded_becomes_likelier() -> None:
    episodes = [
        roll_out(1, g, m, 10 if m else 11, solved=bool(m)) for g in range(4) for m in (0, 1)
    ]
    past, recall = {1: attempts(episodes)}, {e.key: e for e in episodes}.get
    learner = learner_of(tiny())
    before = believed(learner, 10), believed(learner, 11)
    for step in range(2, 12):
        (update,) = consolidate(learner, past, recall, PLAN, step=step, seed=0)
        assert update.tokens == 8  # four successes of two tokens
    assert believed(learner, 10) > before[0] + 1
    assert believed(learner, 11) < before[1]


def test_each_task_counts_once() -> None:
    episodes = [roll_out(1, 0, m, 10, solved=True) for m in range(8)]
    past, recall = {1: attempts(episodes)}, {e.key: e for e in episodes}.get
    (update,) = consolidate(learner_of(tiny()), past, recall, PLAN, step=2, seed=0)
    assert update.tokens == 2


def test_where_nothing_was_solved_nothing_is_learned() -> None:
    episodes = [roll_out(1, 0, m, 10, solved=False) for m in range(3)]
    past, recall = {1: attempts(episodes)}, {e.key: e for e in episodes}.get
    learner = learner_of(tiny())
    before = believed(learner, 10)
    assert consolidate(learner, past, recall, PLAN, step=2, seed=0) == []
    assert believed(learner, 10) == pytest.approx(before)
