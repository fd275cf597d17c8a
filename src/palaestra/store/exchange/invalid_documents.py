"""Errors in reading a document of another program, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from palaestra.core.errors import InputError


@contextmanager
def understood(where: str, kind: str) -> Iterator[None]:
    """Turn errors in reading an invalid document into one InputError.

    Args:
        where: the document's place, for the message.
        kind: what the document should be.

    Raises:
        InputError: the document is invalid.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where} is not a valid {kind}: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    listed = getattr(error, "errors", None)  # of pydantic
    if callable(listed):
        first = listed()[0]
        place = ".".join(str(part) for part in first["loc"] if part != 0)
        return f"{place or 'it'}: {first['msg'].lower()}"
    return " ".join(str(error).split())[:200]
