"""Gymnasium's spaces as text: observations are rendered, replies are parsed into actions."""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy
from gymnasium import spaces

from palaestra.core.errors import InputError

MANY = 512  # the most numbers of an observation; more is a picture and not rendered
EDGES = "> \"'`*"  # a prompt, quotation and emphasis around an action
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,2})?")
DIGITS = 3  # significant digits of a rendered number
WIDE = 10.0  # the sampling range of an unbounded number
ARRAYS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)


# ── observations ─────────────────────────────────────────────────────────────


def check_observed(space: Any) -> None:
    """Raise InputError if observations of the space cannot be rendered as text."""
    if isinstance(space, (spaces.Tuple, spaces.Dict)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            check_observed(part)
    elif isinstance(space, ARRAYS):
        count = math.prod(space.shape)
        if count > MANY:
            raise InputError(
                f"An observation of {count:,} numbers cannot be rendered as text, because the "
                f"limit is {MANY}; give this environment a wrapper that describes it."
            )
    elif not isinstance(space, (spaces.Discrete, spaces.Text)):
        raise InputError(
            f"Observations of the space {space} cannot be rendered as text; "
            "give this environment a wrapper that describes them."
        )


def render_value(space: Any, value: Any, names: Sequence[str] = ()) -> str:
    """Render an observation: numbers rounded to three digits, with their names if known."""
    if isinstance(space, spaces.Dict):
        return "; ".join(
            f"{key} {render_value(part, value[key])}" for key, part in space.spaces.items()
        )
    if isinstance(space, spaces.Tuple):
        parts = [render_value(part, one) for part, one in zip(space.spaces, value, strict=True)]
        return _listed(parts, names)
    if isinstance(space, ARRAYS):
        array = numpy.asarray(value)
        if array.ndim == 2:
            return "\n".join(" ".join(map(_rounded, row)) for row in array)
        return _listed([_rounded(number) for number in array.ravel()], names)
    if isinstance(space, spaces.Discrete):
        return _listed([str(int(value))], names)
    return str(value)


def _listed(parts: list[str], names: Sequence[str]) -> str:
    if len(names) != len(parts):
        return " ".join(parts)
    return ", ".join(f"{name} {part}" for name, part in zip(names, parts, strict=True))


def _rounded(number: Any) -> str:
    return f"{float(number) + 0.0:.{DIGITS}g}".replace("e+0", "e").replace("e-0", "e-")


# ── actions ──────────────────────────────────────────────────────────────────


class ActionParser(ABC):
    """The text format of actions."""

    instruction: str  # how to reply
    words: tuple[str, ...] = ()  # all actions, if they can be listed

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return the action of a cleaned line; None if it is not an action."""

    @abstractmethod
    def sample(self, rng: random.Random) -> str:
        """Sample the text of a random action."""


class Choice(ActionParser):
    """One of a few words, for a Discrete space."""

    def __init__(self, space: spaces.Discrete, names: Sequence[str]) -> None:
        self._start = int(space.start)
        numbers = range(self._start, self._start + int(space.n))
        self.words = tuple(names) or tuple(map(str, numbers))
        if len(self.words) != len(numbers):
            raise InputError(
                f"{len(self.words)} names do not fit {len(numbers)} actions; give one per action."
            )
        self.instruction = f"Reply with one action: {', '.join(self.words)}."

    def parse(self, text: str) -> int | None:
        word = text.lower()
        known = [name.lower() for name in self.words]
        return self._start + known.index(word) if word in known else None

    def sample(self, rng: random.Random) -> str:
        return rng.choice(self.words)


class Numbers(ActionParser):
    """The numbers of a Box, MultiDiscrete or MultiBinary space."""

    def __init__(self, space: Any) -> None:
        self._space = space
        self._count = math.prod(space.shape)
        self._whole = not numpy.issubdtype(space.dtype, numpy.floating)
        low, high = _bounds(space)
        self._low, self._high = low, high
        kind = "whole number" if self._whole else "number"
        several = f"{self._count} {kind}s, separated by blanks"
        self.instruction = (
            f"Reply with {f'one {kind}' if self._count == 1 else several}{self._limits()}."
        )

    def parse(self, text: str) -> Any:
        parts = re.split(r"[,;\s]+", text.strip("[]() "))
        if len(parts) != self._count or not all(map(NUMBER.fullmatch, parts)):
            return None
        values = [float(part) for part in parts]
        if self._whole and any(value != int(value) for value in values):
            return None
        action = numpy.array(values).astype(self._space.dtype).reshape(self._space.shape)
        return action if self._space.contains(action) else None

    def sample(self, rng: random.Random) -> str:
        return " ".join(self._one(rng, i) for i in range(self._count))

    def _one(self, rng: random.Random, index: int) -> str:
        low, high = max(self._low[index], -WIDE), min(self._high[index], WIDE)
        if self._whole:
            return str(rng.randint(int(low), int(high)))
        return repr(min(max(round(rng.uniform(low, high), 3), low), high))

    def _limits(self) -> str:
        low, high = self._low, self._high
        if not (numpy.isfinite(low).all() and numpy.isfinite(high).all()):
            return ""
        if len(set(low)) == len(set(high)) == 1:
            each = "each " if self._count > 1 else ""
            return f", {each}from {_rounded(low[0])} to {_rounded(high[0])}"
        pairs = zip(map(_rounded, low), map(_rounded, high), strict=True)
        return f", from – to: {', '.join(f'{least} – {most}' for least, most in pairs)}"


def action_parser(space: Any, names: Sequence[str] = ()) -> ActionParser:
    """Return the parser of the space's actions.

    Raises:
        InputError: the actions are neither discrete nor numbers, or the names do not fit.
    """
    if isinstance(space, spaces.Discrete):
        return Choice(space, names)
    if isinstance(space, ARRAYS):
        return Numbers(space)
    raise InputError(
        f"Actions of the space {space} cannot be parsed from text; "
        "give this environment a wrapper with discrete or numeric actions."
    )


def line(text: str) -> str:
    """Return the first non-empty line, without punctuation that models put around an action."""
    lines = (" ".join(line.split()).strip(EDGES).rstrip(".!" + EDGES) for line in text.splitlines())
    return next((line for line in lines if line), "")


def _bounds(space: Any) -> tuple[list[float], list[float]]:
    if isinstance(space, spaces.Box):
        return space.low.ravel().tolist(), space.high.ravel().tolist()
    if isinstance(space, spaces.MultiDiscrete):
        start = space.start.ravel()
        return start.tolist(), (start + space.nvec.ravel() - 1).tolist()
    count = math.prod(space.shape)
    return [0] * count, [1] * count
