"""An environment whose tasks need one skill or two, for teams that route them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Task

SKILLS = ("physics", "music", "law")


class Skills(Environment, capabilities={"answer", "admissible", "state_key"}, typical_turns=1):
    """One question in two, and two questions in the others; a letter answers each."""

    instructions = "Answer each question with a letter from a to d, such as: a, or: c a."

    def reset(self, task: Task) -> Observation:
        rng = random.Random(f"skills {task.seed}")
        self.asked = rng.sample(SKILLS, rng.choice((1, 2)))
        self.right = " ".join(rng.choice("abcd") for _ in self.asked)
        self.over = False
        lines = [f"{skill} question {rng.randrange(10**6)}" for skill in self.asked]
        if len(lines) > 1:
            lines = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
        return Observation("\n".join(lines))

    def step(self, action: Action) -> Transition:
        if action.text not in self.admissible():
            return Transition(Observation(self.instructions), valid=False)
        self.over = True
        solved = action.text == self.right
        seen = Observation("Right." if solved else "Wrong.")
        return Transition(seen, float(solved), terminated=True, success=solved)

    def admissible(self) -> Sequence[str]:
        return [" ".join(letters) for letters in product("abcd", repeat=len(self.asked))]

    def answer(self) -> Action:
        return Action(self.right)

    def state_key(self) -> str:
        return f"{self.asked} {self.right} {self.over}"
