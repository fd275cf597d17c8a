"""Which sandboxes can run here, and those that the tests share."""

from __future__ import annotations

import functools

import pytest

from palaestra.sandbox.factory import KINDS
from palaestra.sandbox.unsafe import PlainSandbox

WALLED = [name for name in KINDS if name != PlainSandbox.name]
_SLOW = ("gvisor", "wasm")  # a second or more for each program


@functools.cache
def reason(kind: str) -> str | None:
    """Return why a kind cannot run here; checked once."""
    return KINDS[kind].missing()


def parameters(names: list[str]) -> list[object]:
    """Return parameters for fixtures; slow kinds are for `make test-slow`."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else []) for name in names]


def skip_unless_here(kind: str) -> None:
    """Skip with the kind's own reason."""
    why = reason(kind)
    if why is not None:
        pytest.skip(f"{kind}: {why}")
