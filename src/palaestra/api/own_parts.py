"""Registration of a user's own function as a named part of the learning library."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from palaestra.core.errors import InputError
from palaestra.learning.methods.component import Kind, Need, Status, component, components


def register(
    kind: Kind,
    what: str,
    function: Callable[..., Any],
    source: str,
    needs: Collection[str] = (),
    *,
    called: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Register a function under its own name, and return what is registered.

    A function that is defined again, as in a notebook's cell, replaces its earlier definition.

    Args:
        kind: of the part.
        what: the kind in words, for errors.
        function: the user's.
        source: where its definition comes from; empty: its module.
        needs: by name.
        called: registered in its place, under its name; None: the function itself.

    Raises:
        InputError: another part has that name, or a need is unknown.
    """
    name = function.__name__
    other = components(kind).get(name)
    if other is not None and _definition(other.function) != _definition(function):
        raise InputError(
            f"The {what} '{name}' exists already, from {other.source}; give yours another name."
        )
    return component(
        kind,
        name,
        source=source or function.__module__,
        status=Status.OURS,
        needs=[_need(need, what) for need in needs],
    )(called or function)


def _definition(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def _need(name: str, what: str) -> Need:
    try:
        return Need(name)
    except ValueError:
        known = ", ".join(sorted(Need))
        raise InputError(f"'{name}' is not a need of a {what}; choose from: {known}.") from None
