"""A world in this process turns whatever its environment does wrong into a fault."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, MissingSystemPart
from palaestra.core.task import Task
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.rollout import faulty

TASK = Task("train/0", "counting", seed=5)


def play(environment: Environment, *words: str) -> list[Any]:
    """Everything that a session would see of an episode."""

    async def run_episode() -> list[Any]:
        world = LocalEnvironment(environment)
        seen: list[Any] = [await world.reset(TASK)]
        for word in words:
            seen.append(await world.step(Action(word)))
        await world.close()
        return seen

    return asyncio.run(run_episode())


def test_a_world_tells_what_it_is_before_its_first_task() -> None:
    world = LocalEnvironment(faulty.Counting())
    assert world.instructions == "Say numbers; they are added up."
    assert world.tools == faulty.Counting.tools
    assert world.capabilities == faulty.Counting.spec_of().capabilities


def test_a_world_gives_observations_with_the_declared_signals() -> None:
    (first, before), (transition, after) = play(faulty.Counting(), "2")
    assert first == Observation("start at 5")
    assert (before.state_key, before.progress) == ("5/0", 0.0)
    assert transition.observation == Observation("total 7 after 1")
    assert (transition.reward, after.progress) == (1.0, 0.1)


def test_oracle_and_admissible_actions_go_through() -> None:
    async def ask() -> tuple[list[Action], list[str]]:
        world = LocalEnvironment(faulty.Counting())
        await world.reset(TASK)
        return await world.oracle(), await world.admissible()

    assert asyncio.run(ask()) == ([Action("1")] * 10, ["1", "2"])


def test_what_is_not_declared_is_the_callers_error() -> None:
    class Bare(faulty.Counting):
        @classmethod
        def spec_of(cls, name: str = "") -> Spec:
            return replace(super().spec_of(name), capabilities=frozenset({Capability.PROGRESS}))

        oracle = Environment.oracle

    async def ask() -> None:
        world = LocalEnvironment(Bare())
        await world.reset(TASK)
        await world.oracle()

    with pytest.raises(CapabilityMissing, match="oracle"):
        asyncio.run(ask())


@pytest.mark.parametrize(("name", "kind"), [("reset", "reset"), ("step", "step"), ("exit", "step")])
def test_an_exception_of_the_environment_is_its_error(name: str, kind: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        play(faulty.Raising(name), "1", "1")
    assert caught.value.kind == kind
    assert "faulty.py:" in caught.value.detail


def test_a_missing_system_part_is_not_the_environments_error() -> None:
    with pytest.raises(MissingSystemPart, match="Java"):
        play(faulty.NeedsPart())


@pytest.mark.parametrize(
    "name",
    ["reset", "none", "tuple", "text", "flag", "nan", "info", "surrogate", "huge", "signals"],
)
def test_an_answer_outside_the_contract_is_rubbish(name: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        play(faulty.Rubbish(name), "1", "1")
    assert caught.value.kind == "rubbish"
    assert len(caught.value.detail) < 3000


@pytest.mark.parametrize("name", ["progress-nan", "progress-inf"])
def test_a_progress_that_is_no_number_is_rubbish_that_names_the_environment(name: str) -> None:
    with pytest.raises(EnvironmentFault, match=r"Rubbish: progress is (nan|inf)") as caught:
        play(faulty.Rubbish(name), "1", "1")
    assert caught.value.kind == "rubbish"


def test_closing_twice_or_with_an_error_is_harmless() -> None:
    async def close() -> None:
        world = LocalEnvironment(faulty.Raising("close"))
        await world.close()
        await world.close()

    asyncio.run(close())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    st.builds(
        Transition,
        st.builds(Observation, st.text()),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.dictionaries(st.text(max_size=3), PLAIN, max_size=3),
        st.dictionaries(st.text(max_size=3), st.floats(-9, 9), max_size=2),
    )
)
def test_a_valid_transition_comes_through_unchanged(transition: Transition) -> None:
    class Fixed(faulty.Counting):
        def step(self, action: Action) -> Transition:
            return transition

    assert play(Fixed(), "1")[1][0] == transition
