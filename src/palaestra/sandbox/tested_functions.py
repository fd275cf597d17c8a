"""Functions that join a library once their test has passed in a fresh interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.sandbox.function_library import Function, Library, checks, last_function
from palaestra.sandbox.interpreter import Done, Interpreter


def keep_tested(
    library: Library | None, fresh: Interpreter, known: Sequence[Function], cell: str, test: str
) -> str:
    """Keep the function that a cell defines last if its test passes; return the result as text.

    Args:
        library: where it is kept; None: nowhere.
        fresh: an interpreter in which nothing is defined; it is closed if it was used.
        known: functions that the new one may call.
        cell: Python that defines it.
        test: assertions, at least one of them about it.
    """
    found = last_function(cell)
    if library is None or found is None:
        return "Nothing was kept: there is no library, or the block defines no function."
    name, source = found
    if not checks(test, name):
        return f"{name} was not kept: its test asserts nothing about it."
    try:
        for part in (*(function.source for function in known), source, test):
            done: Done = fresh.run(part)
            if done.error:
                return f"{name} was not kept:\n{done.error}"
    finally:
        fresh.close()
    return f"Kept {name} as version {library.keep(name, source, test).version}."
