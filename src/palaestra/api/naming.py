"""Names of classes and functions, by which plans and recipes refer to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestra.core.errors import InputError


def name_of_class(cls: type) -> str:
    """Return `module:Class`.

    Raises:
        InputError: the class is defined inside a function, where no name reaches it.
    """
    if "." in cls.__qualname__:
        raise InputError(
            f"The class '{cls.__qualname__}' is inside another definition, where no name reaches "
            "it; define it at the top level of a module or a notebook cell."
        )
    return f"{cls.__module__}:{cls.__name__}"


def named(one: str | type) -> str:
    """Return a name as it is, or the name of a class; raise InputError for anything else."""
    if isinstance(one, type):
        return name_of_class(one)
    if not isinstance(one, str):
        raise InputError(f"{one!r} is neither a name nor a class; give one of them.")
    return one


def several(given: Any) -> list[Any]:
    """Return one value or a sequence as a list; a string is one value."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    return [given]
