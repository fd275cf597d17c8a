"""Contexts: numbers of a world, such as its gravity, drawn anew for each task.

After CARL (Benjamins et al. 2023, "Contextualize Me"): the context is explicit, told to the agent
or hidden, and two ids with different ranges are separate distributions to learn in and to test on.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from palaestra.core.environment import Environment, Observation
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Task
from palaestra.environments.wrapper import Wrapper

NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]+)?"
PART = re.compile(rf"(\w+):({NUMBER})(?:~({NUMBER}))?")
DIGITS = 4  # that matter of a drawn number


class Context(Wrapper):
    """Each task has its own context, drawn from its seed."""

    def __init__(self, inner: Environment, choice: str) -> None:
        super().__init__(inner)
        parts = choice.split(",")
        self._hidden = parts[-1] == "hidden"
        self._ranges: dict[str, tuple[float, float]] = {}
        for part in parts[: len(parts) - self._hidden]:
            found = PART.fullmatch(part)
            if found is None:
                raise InputError(
                    f"'{part}' in context={choice} cannot be; give NAME:NUMBER or NAME:LOW~HIGH."
                )
            name, low, high = found[1], float(found[2]), float(found[3] or found[2])
            if name not in inner.context:
                raise UnknownName(f"context of '{inner.name}'", name, inner.context)
            if low > high:
                raise InputError(f"'{part}' in context={choice} cannot be: {low:g} is larger.")
            self._ranges[name] = (low, high)
        self._drawn: dict[str, float] = {}

    def reset(self, task: Task) -> Observation:
        self._drawn = {
            name: float(f"{random.Random(f'{name} {task.seed}').uniform(*ends):.{DIGITS}g}")
            for name, ends in self._ranges.items()
        }
        self.inner.set_context(self._drawn)
        return super().reset(task)

    def begun(self, observation: Observation) -> Observation:
        if self._hidden:
            return observation
        told = ", ".join(f"{name} {value:g}" for name, value in self._drawn.items())
        return replace(observation, text=f"Here, {told}.\n{observation.text}")

    def state_key(self) -> str:
        return "/".join([super().state_key(), *map(str, self._drawn.values())])

    def memory(self) -> dict[str, float]:
        return self._drawn

    def prepare(self, memory: dict[str, float]) -> None:
        self._drawn = memory
        self.inner.set_context(memory)
