"""Names of classes and functions, by which plans and recipes can find them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestra.core.errors import InputError


def name_of_class(cls: type) -> str:
    """`module:Class`.

    Raises:
        InputError: the class is made inside a function, where nothing can find it.
    """
    if "." in cls.__qualname__:
        raise InputError(
            f"The class '{cls.__qualname__}' is inside another definition, where no name leads to "
            "it; define it at the top of a module or a notebook cell."
        )
    return f"{cls.__module__}:{cls.__name__}"


def named(one: str | type) -> str:
    """The name itself, or that of a class; raises InputError for anything else."""
    if isinstance(one, type):
        return name_of_class(one)
    if not isinstance(one, str):
        raise InputError(f"{one!r} is neither a name nor a class; give one of the two.")
    return one


def several(given: Any) -> list[Any]:
    """One or several, as a list; a text is one."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    return [given]
