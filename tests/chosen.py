"""Which values of a long parametrisation the fast suite tries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[Any], *fast: Any) -> list[Any]:
    """Return the values for `pytest.mark.parametrize`: all but the fast ones are marked slow."""
    every = list(values)
    assert not (other := [value for value in fast if value not in every]), f"not there: {other}"
    return [
        value if value in fast else pytest.param(*_arguments(value), marks=pytest.mark.slow)
        for value in every
    ]


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return the arguments of a test: the parts of a tuple, or the value alone."""
    return value if isinstance(value, tuple) else (value,)


def without(fast: Iterable[Any], slow: str) -> list[Any]:
    """Mark the value of that name as slow."""
    return [
        pytest.param(one, marks=pytest.mark.slow) if one.__name__ == slow else one for one in fast
    ]
