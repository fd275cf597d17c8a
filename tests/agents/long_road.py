"""An environment of a hundred turns and a random model, for the laws of memories."""

from __future__ import annotations

import random

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.core.task import Task
from tests.core.small import Stairs, renderer

TURNS = 100


class LongRoad(Stairs):
    """A hundred steps, each with a different observation; any text is a step."""

    instructions = "Walk the road. Reply with one word."

    def __init__(self, length: int = TURNS, seed: int = 0) -> None:
        super().__init__(length)
        self.seed = seed

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.place = 0
        return Observation("Mission: go to the end\n" + self._view()), self._signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        self.place += 1
        end = self.place == self.height
        view = Observation(self._view())
        return Transition(view, float(end), terminated=end, success=end), self._signals()

    def _view(self) -> str:
        rng = random.Random(f"{self.seed} {self.place}")
        things = [rng.choice(["tree", "house", "cow", "stone"]) for _ in range(rng.randint(1, 4))]
        return f"You are at {self.place}, {', '.join(things)}"

    async def oracle(self) -> list[Action]:
        return [Action("up")] * (self.height - self.place)


class Dice(Model):
    """Random tokens of the vocabulary, including sequences that no tokenizer would produce."""

    name = "dice"

    def __init__(self) -> None:
        self.renderer = renderer()
        self.sent: list[tuple[tuple[int, ...], tuple[int, ...]]] = []  # prompts and completions

    async def generate(self, prompt: Prompt) -> Generation:
        assert prompt.tokens is not None and self.renderer is not None
        rng = random.Random(prompt.seed)
        count = rng.randint(1, prompt.sampling.max_tokens)
        tokens = tuple(rng.randrange(10, 300) for _ in range(count))
        if rng.random() < 0.7:
            tokens = (*tokens[:-1], min(self.renderer.end_tokens))
        self.sent.append((prompt.tokens, tokens))
        return Generation(
            text=self.renderer.text(tokens),
            tokens=tokens,
            logprobs=tuple(-0.25 * (1 + t % 3) for t in tokens),
            finish=Finish.STOP if tokens[-1] in self.renderer.end_tokens else Finish.LENGTH,
            policy=self.name,
            version=0,
        )
