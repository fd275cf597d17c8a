"""Notes at the ends of observations: recorded like the rest, saved and restored with the state."""

from __future__ import annotations

import asyncio
from typing import Any

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action, AsyncEnvironment, Capability, Signals, Transition
from palaestra.core.episode import Key
from palaestra.core.task import Split, Task, TaskSet
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.annotated_environment import AnnotatedEnvironment, AnnotatedPool, Notes
from palaestra.rollout.environment_pool import EnvironmentPool
from palaestra.rollout.runner import Job, Rollout
from tests.core.small import Stairs, renderer


class Counting(Notes):
    """Counts the actions of an episode."""

    def __init__(self) -> None:
        self.count = 0

    def first(self, task: Task, signals: Signals) -> str:
        self.count = 0
        return f" Task {task.id}."

    def after(self, action: Action, transition: Transition, signals: Signals) -> str:
        self.count += 1
        return f" {self.count} done." if transition.valid else ""

    def state(self) -> Any:
        return self.count

    def restore(self, state: Any) -> None:
        self.count = state


class Saved(Stairs):
    capabilities = frozenset({Capability.SNAPSHOT})

    async def snapshot(self) -> bytes:
        return b"\n%d\n" % self.place  # any bytes

    async def restore(self, snapshot: bytes) -> Signals:
        self.place = int(snapshot)
        return self._signals()


def test_prompts_hold_the_notes_token_for_token() -> None:
    made: list[AsyncEnvironment] = []

    async def make(environment: str) -> AsyncEnvironment:
        made.append(Stairs())
        return made[-1]

    async def run() -> Any:
        kept = EnvironmentPool(make)
        pool = AnnotatedPool(kept, Counting)
        rollout = Rollout(
            DirectAgent(),
            pool.take,
            {"agent": ScriptedModel(["up", "sideways", "up", "up"], renderer=renderer())},
            keep=pool.keep,
            concurrency=1,
        )
        jobs = [Job(Key("test", i), TaskSet("stairs").task(Split.TEST, i)) for i in range(2)]
        found = await rollout.run(jobs)
        assert isinstance(await kept.take("stairs"), Stairs)  # what is kept has no notes
        return found

    episodes = asyncio.run(run())
    assert len(made) == 1
    for number, episode in enumerate(episodes):
        seen = [call.messages[-1].text for call in episode.calls]
        assert seen == [
            f"You are on step 0 of 3. Task test/{number}.",
            "You are on step 1 of 3. 1 done.",
            "What?",
            "You are on step 2 of 3. 3 done.",
        ]
        for call in episode.calls:
            assert seen[call.index] in renderer().text(call.prompt)
        assert episode.steps[0].transition.observation.text == seen[1]


def test_a_restored_state_has_its_notes() -> None:
    async def run() -> None:
        environment = AnnotatedEnvironment(Saved(), Counting())
        await environment.reset(TaskSet("stairs").task(Split.TEST, 0))
        await environment.step(Action("up"))
        saved = await environment.snapshot()
        await environment.step(Action("up"))
        await environment.restore(saved)
        transition, _ = await environment.step(Action("up"))
        assert transition.observation.text == "You are on step 2 of 3. 2 done."
        assert await environment.oracle() == [Action("up")]
        assert await environment.admissible() == ["up", "fall"]
        await environment.close()

    asyncio.run(run())
