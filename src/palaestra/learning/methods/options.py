"""The values that a part's option takes: declared by annotations, checked when a recipe is read.

`Annotated[float, Range(least=0, most=1)]` bounds a number, a `Literal` or an `Enum` names the
choices, `tuple[int, ...]` or `Sequence[int]` is a list, `X | None` is optional. Numbers are
finite unless a bound declares otherwise: `Range(above=1, most=math.inf)` takes infinity too.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

FINITE = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that an option takes: `least` and `most` inclusive, `above` and `below` not."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        finite = -FINITE <= value <= FINITE  # not so for nan, and for whole numbers without end
        return (
            (finite or value in (self.least, self.most))
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def words(self, kind: type) -> str:
        """Describe the range, such as "a number in [0, 1)"; "whole" if the kind is int."""
        number = "a whole number" if kind is int else "a number"
        finite = "a whole number" if kind is int else "a finite number"
        low = self.above if self.least is None else self.least
        high = self.below if self.most is None else self.most
        above = "" if low is None else f" above {low:g}"
        if self.least is not None:
            above = f" of at least {low:g}"
        if high is None:
            return finite + above
        if high > FINITE:
            return f"{number}{above}, or inf"
        if low is None:
            return finite + (f" below {high:g}" if self.most is None else f" of at most {high:g}")
        left, right = "(" if self.least is None else "[", ")" if self.most is None else "]"
        return f"{number} in {left}{low:g}, {high:g}{right}"


Share = Annotated[float, Range(least=0, most=1)]
"""A share of something; also discounts, the lambda of GAE and probabilities."""
SomeShare = Annotated[float, Range(above=0, most=1)]
Decay = Annotated[float, Range(least=0, below=1)]
"""Weight of the past in a running mean; at 1 nothing would ever be learnt."""
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Cap = Annotated[float, Range(least=1)]
"""Upper bound of an importance ratio; below 1, tokens that are exactly on policy would change."""
Floor = Annotated[float, Range(least=0, most=1)]
"""Lower bound of an importance ratio."""
Count = Annotated[int, Range(least=1)]
Ddof = Literal[0, 1]
"""The number subtracted from n in the denominator of a variance."""


def hint_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return an option's annotation, or the type of its default if none can be read."""
    known = getattr(function, "__globals__", {})
    if parameter.annotation is not parameter.empty:
        holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        try:
            return typing.get_type_hints(holder, known, include_extras=True)[parameter.name]
        except (NameError, AttributeError, SyntaxError, TypeError):
            pass  # in a package that imports its types for the type checker only
    default = parameter.default
    if isinstance(default, str):
        return str  # also for a name in an enumeration
    if isinstance(default, (tuple, list)):
        return Sequence[Any]
    return type(default) if isinstance(default, (bool, int, float)) else Any


def fits(value: Any, hint: Any) -> bool:
    """Return whether the option takes the value."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        limits = [limit for limit in arguments[1:] if isinstance(limit, Range)]
        if limits and arguments[0] in (int, float):
            return _is_number(value, arguments[0]) and all(value in limit for limit in limits)
        return fits(value, arguments[0])
    if kind in (Union, UnionType):
        return any(fits(value, arm) for arm in arguments)
    if kind is Literal:
        same = [one for one in arguments if value == one]  # 1.0 and True equal 1
        return any(isinstance(value, str) or type(value) is type(one) for one in same)
    if kind in (tuple, list, Sequence):
        return isinstance(value, tuple | list) and all(fits(one, arguments[0]) for one in value)
    if kind is Callable:
        return callable(value)
    if hint in (int, float):
        return _is_number(value, hint) and value in Range()
    if kind in (dict, Mapping):
        return isinstance(value, Mapping)
    if hint is Any or not isinstance(hint, type):
        return True  # a type not handled here
    if issubclass(hint, Enum):
        return isinstance(value, str) and any(value == one.value for one in hint)
    return isinstance(value, hint)


def words(hint: Any) -> str:
    """Describe what the option takes, such as "a number in [0, 1]"."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        limits = [limit for limit in arguments[1:] if isinstance(limit, Range)]
        if limits and arguments[0] in (int, float):
            return " and ".join(limit.words(arguments[0]) for limit in limits)
        return words(arguments[0])
    if kind in (Union, UnionType):
        arms = [arm for arm in arguments if arm is not NoneType and get_origin(arm) is not Callable]
        return " or ".join(words(arm) for arm in arms)
    if kind is Literal:
        return _one_of([str(one) for one in arguments])
    if kind in (tuple, list, Sequence):
        inside = words(arguments[0]).removeprefix("a ")
        return "a list" if arguments[0] is Any else f"a list, each a {inside}"
    if hint in (int, float):
        return Range().words(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _one_of([str(one.value) for one in hint])
    if kind in (dict, Mapping):
        return "a table"
    return _WORDS.get(hint, "something else")


_WORDS: dict[Any, str] = {bool: "true or false", str: "a text"}


def _is_number(value: Any, kind: type) -> bool:
    allowed = int if kind is int else int | float
    return isinstance(value, allowed) and not isinstance(value, bool)


def _one_of(names: Sequence[str]) -> str:
    return " or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}"
