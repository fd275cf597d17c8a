"""A world, models and agents small enough to see, for tests of sessions and rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, AsyncEnvironment, Observation, Signals, Transition
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.message import Message
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.scripted_model import ScriptedModel

TASK = Task("train/0", "stairs", 0)
KEY = Key("test", 0)


@cache
def renderer() -> ChatMLRenderer:
    texts = ["go up the stairs", "go down the stairs", "You are on step 1 of 3.", "up up up down"]
    return ChatMLRenderer(learn_vocabulary(texts * 3, 320), "tiny")


class Stairs(AsyncEnvironment):
    """`up` climbs one step of `height`, `fall` ends the episode; nothing else is understood."""

    instructions = "Climb the stairs."
    tools = ()
    capabilities = frozenset()

    def __init__(self, height: int = 3, name: str = "step") -> None:
        self.height, self.name = height, name
        self.place = 0

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.place = 0
        return self._seen(), self._signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        if action.text not in ("up", "fall"):
            return Transition(Observation("What?"), valid=False), self._signals()
        self.place += action.text == "up"
        top = self.place == self.height
        transition = Transition(
            self._seen(), float(top), terminated=top or action.text == "fall", success=top
        )
        return transition, self._signals()

    def _seen(self) -> Observation:
        return Observation(f"You are on {self.name} {self.place} of {self.height}.")

    def _signals(self) -> Signals:
        return Signals(str(self.place), self.place / self.height)

    async def oracle(self) -> list[Action]:
        return [Action("up")] * (self.height - self.place)

    async def admissible(self) -> list[str]:
        return ["up", "fall"]

    async def sample(self, seed: int) -> Action:
        return Action("up")

    async def close(self) -> None:
        pass


class Counted(ScriptedModel):
    """A scripted model that counts how often it was asked."""

    asked = 0

    async def generate(self, prompt: Prompt) -> Generation:
        self.asked += 1
        return await super().generate(prompt)


class Sampled(Model):
    """Says given token ids, one sequence per call, and remembers the prompts that it read."""

    name = "sampled"

    def __init__(self, replies: Sequence[Sequence[int]]) -> None:
        self.renderer = renderer()
        self.replies = [tuple(reply) for reply in replies]
        self.prompts: list[tuple[int, ...]] = []

    async def generate(self, prompt: Prompt) -> Generation:
        assert prompt.tokens is not None
        tokens = self.replies[len(self.prompts)]
        self.prompts.append(prompt.tokens)
        assert self.renderer is not None
        return Generation(
            text=self.renderer.text(tokens),
            tokens=tokens,
            logprobs=(-0.5,) * len(tokens),
            finish=Finish.STOP if tokens[-1] in self.renderer.end_tokens else Finish.LENGTH,
            policy=self.name,
            version=0,
        )


class Asking(Agent):
    """Asks prepared questions, one after the other, and never acts."""

    name = "asking"

    def __init__(self, *questions: Sequence[Message]) -> None:
        self.questions = questions

    async def run(self, session: Session) -> None:
        for messages in self.questions:
            await session.generate(messages)


class Acting(Agent):
    """Acts without asking any model."""

    name = "acting"

    def __init__(self, *actions: str) -> None:
        self.actions = actions

    async def run(self, session: Session) -> None:
        for action in self.actions:
            await session.act(action)


class Journal:
    """Events in a list."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def append(self, key: Key, event: Event) -> None:
        self.events.append(event)


def session(
    agent: Agent,
    model: Model | Mapping[str, Model] | None = None,
    world: AsyncEnvironment | None = None,
    budget: Budget = Budget(),
    **more: Any,
) -> Session:
    models = model if isinstance(model, Mapping) else {"agent": model} if model else {}
    return Session(KEY, TASK, world or Stairs(), agent, models, budget=budget, **more)


def run_episode(
    agent: Agent,
    model: Model | Mapping[str, Model] | None = None,
    world: AsyncEnvironment | None = None,
    budget: Budget = Budget(),
    **more: Any,
) -> Episode:
    """Return one episode, from its reset to its outcome."""
    return asyncio.run(session(agent, model, world, budget, **more).run())
