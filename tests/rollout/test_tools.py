"""Tools that change with the task and within an episode are those that the session sees."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from palaestra.core.agent import Agent
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Capability,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.episode import Key
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.rollout.guarded_environment import STEPPED, GuardedEnvironment, LocalEnvironment
from palaestra.rollout.worker_pool import WorkerPool
from tests.rollout import faulty

TASK = Task("train/0", "growing", seed=5)
KEYS = {name: Tool(name, "Press it.", {"type": "object", "properties": {}}) for name in "abcd"}


class Growing(faulty.Counting):
    """Says all its tools before the first task, two with it, and one more with each `1`."""

    tools = tuple(KEYS.values())  # type: ignore[assignment]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return replace(super().spec_of(name), capabilities=frozenset({Capability.STATE_KEY}))

    def reset(self, task: Task) -> Observation:
        self.tools = (KEYS["a"], KEYS["b"])
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        if action.text == "1":
            self.tools += tuple(KEYS.values())[len(self.tools) :][:1]
        return super().step(action)


async def seen(world: AsyncEnvironment, *words: str) -> list[str]:
    """The tools on offer: before the task, at its start, after each action."""
    found = ["".join(tool.name for tool in world.tools)]
    await world.reset(TASK)
    found.append("".join(tool.name for tool in world.tools))
    for word in words:
        await world.step(Action(word))
        found.append("".join(tool.name for tool in world.tools))
    return found


def test_tools_are_those_on_offer_now_and_go_back_with_a_reset() -> None:
    world = LocalEnvironment(Growing())
    assert asyncio.run(seen(world, "1", "2", "1")) == ["abcd", "ab", "abc", "abc", "abcd"]
    assert asyncio.run(seen(world, "2")) == ["abcd", "ab", "ab"]


def test_unchanged_tools_are_sent_once() -> None:
    keeper = GuardedEnvironment(Growing(), "growing")
    keeper.describe()
    keeper.reset(TASK)
    shown = [STEPPED.load(keeper.step(Action(word)).data)[2] for word in "2121"]
    assert [tools and len(tools) for tools in shown] == [None, 3, None, 4]
    steady = GuardedEnvironment(faulty.Counting(), "steady")
    steady.describe()
    assert steady.reset(TASK).value[2] is None and steady.step(Action("1")).value[2] is None


@pytest.mark.parametrize("lost", [False, True])
def test_a_hosted_world_keeps_its_tools_even_when_its_worker_is_lost(lost: bool) -> None:
    async def use() -> list[Any]:
        async with WorkerPool(1) as pool:
            world = await pool.make("tests.rollout.test_tools:Growing")
            found: list[Any] = await seen(world, "1", "2")
            if lost:
                process = world._handle._process
                assert process is not None
                await process.kill()
            for word in "21":
                await world.step(Action(word))
                found.append("".join(tool.name for tool in world.tools))
            return found

    assert asyncio.run(use()) == ["abcd", "ab", "abc", "abc", "abc", "abcd"]


def test_an_agent_sees_the_tools_on_offer_now() -> None:
    shown: list[int] = []

    class Looking(Agent):
        name = "looking"

        async def run(self, session: Session) -> None:
            for word in "211":
                shown.append(len(session.tools))
                await session.act(word)
            shown.append(len(session.tools))

    running = Session(Key("test", 0), TASK, LocalEnvironment(Growing()), Looking(), {}).run()
    assert asyncio.run(running).outcome == Outcome.failure()
    assert shown == [2, 2, 3, 4]
