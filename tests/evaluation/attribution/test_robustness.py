"""One-factor perturbations: the same tasks, the same agent, one thing changed."""

from __future__ import annotations

import asyncio

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Split, TaskSet
from palaestra.environments.registry import make
from palaestra.evaluation.attribution.robustness import (
    FACTORS,
    PLAIN,
    Factor,
    changed,
    ratio,
    robustness,
)
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Rollout

ENV = "probe/memory-4"


def measured(model: object, factors: dict[str, str], turns: int) -> dict[str, Factor]:
    async def world(environment: str) -> AsyncEnvironment:
        return LocalEnvironment(make(environment))

    assert isinstance(model, (ExpertModel, ScriptedModel))
    rollout = Rollout(DirectAgent(), world, {"agent": model}, budget=Budget(turns=turns))
    tasks = TaskSet(ENV).take(Split.TEST, 12)
    found = asyncio.run(robustness(rollout, ENV, tasks, factors))
    return {factor.name: factor for factor in found}


def test_an_expert_who_tries_again_survives_passing_errors() -> None:
    found = measured(ExpertModel(DirectAgent()), {"errors": "errors=0.3"}, turns=30)
    assert found["errors"].robustness is not None
    assert found["errors"].robustness.mean == 1.0
    assert found["errors"].turns > found[PLAIN].turns


def test_with_no_turn_to_spare_the_same_errors_cost_successes() -> None:
    found = measured(ExpertModel(DirectAgent()), {"errors": "errors=0.3"}, turns=4)
    kept, difference = found["errors"].robustness, found["errors"].difference
    assert kept is not None and difference is not None and found["errors"].success is not None
    assert kept.mean == found["errors"].success.mean < 0.5  # the expert solves all without them
    assert difference.below_zero


def test_an_error_in_what_is_reported_hurts_who_reads_and_not_who_knows() -> None:
    reader = ScriptedModel(lambda messages: "blue" if "blue" in messages[1].text else "red")
    halved = {"partial": "partial=1"}
    assert measured(reader, halved, turns=4)["partial"].robustness is not None
    expert = measured(ExpertModel(DirectAgent()), halved, turns=4)["partial"].robustness
    assert expert is not None and expert.mean == 1.0


def test_equal_calls_give_equal_numbers() -> None:
    factors = {"errors": "errors=0.3"}
    first, second = (measured(ExpertModel(DirectAgent()), factors, 5) for _ in range(2))
    assert first == second


def test_robustness_does_not_exist_where_nothing_succeeds_without_the_error() -> None:
    never = ScriptedModel(lambda messages: "purple")
    found = measured(never, {"errors": "errors=0.3"}, turns=4)["errors"]
    assert found.robustness is None
    assert found.success is not None and found.success.mean == 0.0


def test_the_ratio_is_of_means_over_complete_pairs() -> None:
    found = ratio([1.0, 0.0, None, 1.0], [1.0, 1.0, 1.0, 0.0])
    assert found is not None
    assert (found.mean, found.n) == (1.0, 3)
    assert found.low <= found.mean <= found.high


def test_a_knob_is_added_behind_those_that_are_set() -> None:
    assert changed("a/b", "errors=0.1") == "a/b?errors=0.1"
    assert changed("a/b?turns=9", "errors=0.1") == "a/b?turns=9&errors=0.1"


def test_a_factor_that_is_no_knob_or_is_set_already_is_refused() -> None:
    with pytest.raises(UnknownName, match="errors"):
        changed("a/b", "error=0.1")
    with pytest.raises(InputError, match="twice"):
        changed("a/b?errors=0.1", "errors=0.2")


def test_all_usual_factors_are_knobs() -> None:
    assert all(changed(ENV, query) for query in FACTORS.values())
