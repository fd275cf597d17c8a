"""Contexts: parameters of an environment, such as its gravity, sampled for each task.

After CARL (Benjamins et al. 2023, "Contextualize Me"): the context is explicit, shown to the agent
or hidden, and two ids with different ranges are separate distributions for training and testing.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from palaestra.core.environment import Environment, Observation, Spec
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.rare_capabilities import Contextual
from palaestra.core.task import Task
from palaestra.environments.wrappers.wrapper import Wrapper

NUMBER = r"-?[0-9]{1,15}(?:\.[0-9]+)?"
PART = re.compile(rf"(\w+):({NUMBER})(?:~({NUMBER}))?")
DIGITS = 4  # significant digits of a sampled number


class Context(Wrapper):
    """A wrapper that sets a context, sampled from each task's seed."""

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._ranges, self._hidden = _ranges(value, inner.spec)
        self._sampled: dict[str, float] = {}

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        _ranges(value, spec)
        return spec

    def reset(self, task: Task) -> Observation:
        self._sampled = {
            name: float(f"{random.Random(f'{name} {task.seed}').uniform(*ends):.{DIGITS}g}")
            for name, ends in self._ranges.items()
        }
        self._set(self._sampled)
        return super().reset(task)

    def after_reset(self, observation: Observation) -> Observation:
        if self._hidden:
            return observation
        listed = ", ".join(f"{name} {value:g}" for name, value in self._sampled.items())
        return replace(observation, text=f"Here, {listed}.\n{observation.text}")

    def state_key(self) -> str:
        return "/".join([super().state_key(), *map(str, self._sampled.values())])

    def memory(self) -> dict[str, float]:
        return self._sampled

    def prepare(self, memory: dict[str, float]) -> None:
        self._sampled = memory
        self._set(memory)

    def _set(self, values: dict[str, float]) -> None:
        if isinstance(self.inner, Contextual):
            self.inner.set_context(values)


def _ranges(value: str, spec: Spec) -> tuple[dict[str, tuple[float, float]], bool]:
    """Return the range of each named parameter, and whether the context is hidden.

    Raises:
        UnknownName: the environment has no such parameter.
        InputError: a range is malformed, or its low end is above its high end.
    """
    parts = value.split(",")
    hidden = parts[-1] == "hidden"
    ranges: dict[str, tuple[float, float]] = {}
    for part in parts[: len(parts) - hidden]:
        found = PART.fullmatch(part)
        if found is None:
            raise InputError(
                f"'{part}' in context={value} is malformed; give NAME:NUMBER or NAME:LOW~HIGH."
            )
        name, low, high = found[1], float(found[2]), float(found[3] or found[2])
        if name not in spec.context:
            raise UnknownName(f"context of '{spec.name}'", name, spec.context)
        if low > high:
            raise InputError(
                f"'{part}' in context={value} is empty, because {low:g} is larger than {high:g}; "
                "give LOW~HIGH."
            )
        ranges[name] = (low, high)
    return ranges, hidden
