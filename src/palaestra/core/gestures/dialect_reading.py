"""How the readers of dialects take actions apart, each argument once and of a checked type."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Point
from palaestra.core.strict_json import parsed

NOTCH = 100.0
"""Pixels that one notch of a mouse wheel scrolls: a convention, as systems do not say how many."""

PAGES: dict[str, tuple[float, float]] = {
    "up": (0.0, -1.0),
    "down": (0.0, 1.0),
    "left": (-1.0, 0.0),
    "right": (1.0, 0.0),
}
"""Amounts of scrolling by one page in each direction."""


def unread(dialect: str, text: str, why: str) -> NoReturn:
    """Raise the InputError of a text that a dialect does not read."""
    text = " ".join(text.split())
    shown = text if len(text) <= 60 else text[:57] + "…"
    raise InputError(f"'{shown}' is no action of {dialect}: {why}.")


def type_of(text: str) -> Gesture:
    """Return the gesture that types a text, in which a line's end at the end is Enter."""
    return Gesture("type", text=text.removesuffix("\n"), enter=text.endswith("\n"))


_REQUIRED: Any = object()


class Arguments:
    """The arguments of an action, each taken once and of a checked type.

    Every method raises an InputError that names the action and the argument.
    """

    def __init__(self, dialect: str, text: str, given: Mapping[str, Any]) -> None:
        self.dialect, self.text, self.left = dialect, text, dict(given)

    def string(self, name: str, default: str = _REQUIRED) -> str:
        """Take a text."""
        return str(self._taken(name, default, str, "a text"))

    def number(self, name: str, default: float = _REQUIRED) -> float:
        """Take a number."""
        return float(self._taken(name, default, (int, float), "a number"))

    def flag(self, name: str) -> bool:
        """Take true or false; false if it is left out."""
        return bool(self._taken(name, False, bool, "true or false"))

    def strings(self, name: str) -> list[str]:
        """Take a list of texts, or one text as a list."""
        found = self._taken(name, _REQUIRED, (str, list, tuple), "a list of texts")
        found = [found] if isinstance(found, str) else list(found)
        if not all(isinstance(one, str) for one in found):
            self.wrong(f"'{name}' is {found!r:.40}, not a list of texts")
        return found

    def only(self, name: str, expected: object) -> None:
        """Take a value that may only be one."""
        found = self.left.pop(name, expected)
        if found != expected:
            self.wrong(f"'{name}' can only be {expected!r} here, not {found!r:.40}")

    def one_of(self, name: str, known: Collection[str], default: str = _REQUIRED) -> str:
        """Take one of these texts."""
        found = self.string(name, default)
        if found not in known:
            self.wrong(f"'{name}' is '{found}', not one of {', '.join(known)}")
        return found

    def pixels(self, x: str = "x", y: str = "y") -> Point:
        """Take a point in pixels."""
        return Point(self.number(x), self.number(y))

    def pair(self, name: str) -> tuple[float, float]:
        """Take a list of two numbers."""
        found = self._taken(name, _REQUIRED, (list, tuple), "two numbers")
        if len(found) != 2 or not all(_is_number(one) for one in found):
            self.wrong(f"'{name}' is {found!r:.40}, not two numbers")
        return float(found[0]), float(found[1])

    def has(self, name: str) -> bool:
        """Return whether an argument is left."""
        return name in self.left

    def done(self) -> None:
        """Raise if any argument is left."""
        if self.left:
            self.wrong(f"'{next(iter(self.left))}' is not understood")

    def wrong(self, why: str) -> NoReturn:
        """Raise the InputError."""
        unread(self.dialect, self.text, why)

    def _taken(self, name: str, default: Any, kind: Any, called: str) -> Any:
        found = self.left.pop(name, default)
        if found is _REQUIRED:
            self.wrong(f"it lacks '{name}'")
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            self.wrong(f"'{name}' is {found!r:.40}, not {called}")
        return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Call:
    """A call in Python's syntax whose arguments are plain values."""

    name: str
    positional: tuple[Any, ...]
    named: Mapping[str, Any]


def python_calls(dialect: str, text: str) -> list[Call]:
    """Return the calls that a text in Python's syntax consists of; nothing is executed.

    Imports are passed over.

    Raises:
        InputError: it consists of anything else.
    """
    try:
        statements = ast.parse(text.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        unread(dialect, text, "it is no call in Python's syntax")
    calls = []
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            unread(dialect, text, "it holds more than calls")
        call = statement.value
        try:
            positional = tuple(map(ast.literal_eval, call.args))
            named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        except (ValueError, TypeError, RecursionError):
            unread(dialect, text, "its arguments are no plain values")
        calls.append(
            Call(ast.unparse(call.func), positional, {str(key): named[key] for key in named})
        )
    if not calls:
        unread(dialect, text, "it holds no call")
    return calls


def arguments_of(dialect: str, text: str, call: Call, order: str = "") -> Arguments:
    """Return the arguments of a call by name.

    Args:
        dialect: the name of the dialect, for errors.
        text: what was read, for errors.
        call: the call.
        order: the names of its parameters, in order.
    """
    names = order.split()
    given = dict(zip(names, call.positional, strict=False))
    if len(call.positional) > len(names) or not given.keys().isdisjoint(call.named):
        unread(dialect, text, f"{call.name} takes ({', '.join(names)})")
    return Arguments(dialect, text, {**given, **call.named})


def json_arguments(dialect: str, text: str) -> Arguments:
    """Return the members of the JSON object that a text is; raises InputError if it is none."""
    try:
        found = parsed(text)
    except ValueError:
        unread(dialect, text, "it is no JSON")
    if not isinstance(found, dict):
        unread(dialect, text, "it is no JSON object")
    return Arguments(dialect, text, found)
