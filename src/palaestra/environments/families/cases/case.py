"""One generated case: what is shown, and the parts of its answer with the values to choose from."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an answer."""

    right: str
    choices: tuple[str, ...]  # the right one among them
    tolerance: float | None = None  # for numbers, by how much they may differ; None: equal texts

    def holds(self, value: str) -> bool:
        """Return whether a value is right."""
        value = _plain(value)
        if self.tolerance is None:
            return value == _plain(self.right)
        try:
            return abs(float(value.replace(",", "")) - float(self.right)) <= self.tolerance
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Case:
    """A case and the answer to it."""

    text: str
    parts: Mapping[str, Part]  # by name, in the order of an answer

    def answer(self) -> str:
        """Return the right answer."""
        return "; ".join(f"{name}: {part.right}" for name, part in self.parts.items())

    def sample(self, rng: random.Random) -> str:
        """Return an answer of random parts."""
        return "; ".join(f"{name}: {rng.choice(part.choices)}" for name, part in self.parts.items())


def among(right: str, others: Sequence[str], tolerance: float | None = None) -> Part:
    """Return a part whose choices are its right value and the others, each once."""
    return Part(right, tuple(dict.fromkeys((right, *others))), tolerance)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .")
