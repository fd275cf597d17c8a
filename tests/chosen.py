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
        value if value in fast else pytest.param(value, marks=pytest.mark.slow) for value in every
    ]
