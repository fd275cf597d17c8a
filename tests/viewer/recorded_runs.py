"""Runs made by real rollouts in a small world, for the pages that show episodes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.agents.direct import DirectAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, AsyncEnvironment, Observation, Signals, Transition
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.graph import Call
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.store.run_folder import RunFolder
from tests.core.small import Stairs, renderer

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
RECIPE = {"summary": "stairs", "turn_limit": 6, "agent": "direct", "model": "says"}
PLANS = (["up", "up", "up"], ["up", "sit", "fall"], ["fall"], ["up", "up", "fall"])
"""What the four members of a group do: one climbs, three fall, one of them says nonsense."""


class Replies(Model):
    """Says these words one after the other, token by token, each with its own probability."""

    name = "says"

    def __init__(self, words: Sequence[str]) -> None:
        self.renderer = renderer()
        self._words = list(words)

    async def generate(self, prompt: Prompt) -> Generation:
        assert self.renderer is not None
        tokens = tuple(self.renderer.reply(self._words.pop(0)))
        logprobs = tuple(-0.01 - 0.4 * i for i in range(len(tokens)))
        return Generation(
            self.renderer.text(tokens), tokens, logprobs, Finish.STOP, self.name, 2,
            prompt_tokens=len(prompt.tokens or ()), computed_tokens=3, seconds=0.25,
        )  # fmt: skip


def roll_out(key: Key, words: Sequence[str], world: AsyncEnvironment | None = None) -> Episode:
    """One episode of those words, by the same session as any."""
    task = Task(f"test/{key.group}", "stairs", 3 * key.group + 2, Split.TEST)
    session = Session(
        key,
        task,
        world or Stairs(),
        DirectAgent(),
        {"agent": Replies(words)},
        budget=Budget(turns=6),
    )
    return asyncio.run(session.run())


def scripted(key: Key, words: Sequence[str], world: AsyncEnvironment) -> Episode:
    """Likewise, by a model that gives words only."""
    task = Task(f"test/{key.group}", "stairs", key.group, Split.TEST)
    left = list(words)

    def answer(_: Sequence[Message]) -> str:
        return left.pop(0)

    budget = Budget(turns=len(left))
    session = Session(
        key, task, world, DirectAgent(), {"agent": ScriptedModel(answer)}, budget=budget
    )
    return asyncio.run(session.run())


def stairs_run(root: Path, name: str = "stairs", tasks: int = 2) -> Path:
    """Groups of four, from real rollouts."""
    with RunFolder.create(root / name, RECIPE) as run:
        for group in range(tasks):
            for member, plan in enumerate(PLANS):
                run.database.finish(roll_out(Key("eval/test", group, member), plan))
    return root / name


def one_each(root: Path, name: str, plans: Mapping[int, Sequence[str]]) -> Path:
    """One episode per task."""
    with RunFolder.create(root / name, RECIPE) as run:
        for group, plan in plans.items():
            run.database.finish(roll_out(Key("test/rl", group), plan))
    return root / name


class Saying(AsyncEnvironment):
    """Says one text after the other, whatever is done."""

    instructions = "Listen."
    tools = ()
    capabilities = frozenset()

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self.place = 0

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        return Observation(self.texts[0]), Signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        self.place += 1
        text = self.texts[self.place % len(self.texts)]
        return Transition(Observation(text), valid=False, info={"said": text[:200]}), Signals()

    async def oracle(self) -> list[Action]:
        return []

    async def admissible(self) -> list[str]:
        return []

    async def close(self) -> None:
        pass


def long_run(root: Path, turns: int = 1000) -> Path:
    """One long episode, and a branch of its conversation half-way."""
    half = turns // 2
    calls = [_call(i, _parent(i, half)) for i in range(turns)]
    steps = [_step(i, turns) for i in range(turns)]
    whole: dict[str, Any] = {"calls": tuple(calls), "steps": tuple(steps)}
    made = roll_out(Key("long", 0), ["up", "fall"])
    with RunFolder.create(root / "long", RECIPE) as run:
        run.database.finish(
            Episode(made.key, made.task, "direct", Observation("the start"), **whole,
                    outcome=Outcome.failure(), usage=made.usage, progress=0.5)
        )  # fmt: skip
    return root / "long"


def _parent(index: int, half: int) -> int | None:
    return half - 2 if index == half else index - 1 if index else None


def _call(index: int, parent: int | None) -> Call:
    return Call(
        index, parent, "agent", (user(f"place {index}"),), (1, 2), assistant(f"walk to {index}"),
        (5, 6), (-0.1, -2.0), Finish.STOP, "says", 0,
    )  # fmt: skip


def _step(index: int, turns: int) -> Step:
    before = Signals(None, 0.9 if index == turns // 3 else 0.5 if index else None)
    seen = Observation(f"place {index + 1}\nnothing else is here")
    return Step(index, index, Action(f"walk to {index}"), Transition(seen), before, 0.01)
