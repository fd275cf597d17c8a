"""Translations are scored by chrF, and a gate decides."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

pytest.importorskip("sacrebleu", reason="'sacrebleu' is not installed")

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.chrf_translation.environment import GATE, TRIES, Translation


def begun(index: int = 0) -> Translation:
    world = Translation()
    world.reset(registry.tasks("translation/german").task(Split.TEST, index))
    return world


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of("translation/german"))


def test_a_near_translation_passes_the_gate_and_a_far_one_does_not() -> None:
    world = begun()
    near = world.step(Action(world.answer().text + " Yes."))
    assert near.success and GATE <= near.info["chrf"] < 100
    world = begun()
    for attempt in range(1, TRIES + 1):
        far = world.step(Action("Something else entirely."))
        assert far.terminated == (attempt == TRIES) and not far.success
    assert far.reward == pytest.approx(far.info["chrf"] / 100, abs=1e-4)


def test_sampled_translations_are_below_the_gate() -> None:
    for seed in range(20):
        world = begun(seed)
        assert world.step(world.sample_action(random.Random(seed))).info["chrf"] < GATE
