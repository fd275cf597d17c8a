"""Fields of requests: a shape declares those that are honoured; all others that are set are named.

So nothing is ignored in silence, whatever a protocol comes up with next. What would lose a part of
the conversation, or tools, is refused instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from palaestra.rollout.gateway.refusal import Refusal

UNSET: tuple[Any, ...] = (None, "", [], {})
NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # values that ask for nothing but what is done
    "frequency_penalty": (0,),
    "min_p": (0,),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "service_tier": ("auto", "default"),
    "top_k": (0, -1),
    "top_p": (1,),
    "truncation": ("disabled",),
}
FLAG = (False,)  # a switch that is off, unless `NEUTRAL` knows better


class Shape(BaseModel):
    """A part of a request; what it does not declare is kept, to be named."""

    model_config = ConfigDict(extra="allow")


def ignored(
    request: BaseModel,
    neutral: Mapping[str, tuple[Any, ...]] = {},
    lost: Mapping[str, str] = {},
) -> tuple[str, ...]:
    """What is set in a request and not declared by its shape, such as `tools.cache_control`.

    Args:
        request: all of it.
        neutral: values that mean nothing in this protocol, by field, besides `NEUTRAL`; an
            empty tuple stands for all values.
        lost: fields by which the conversation or tools would be lost, and what to do instead.

    Raises:
        Refusal: one of the `lost` is set.
    """
    found: dict[str, None] = {}
    known = {**NEUTRAL, **neutral}
    for field, value in _undeclared(request, ""):
        if value in UNSET or _neutral(value, known.get(field, FLAG)):
            continue
        if field in lost:
            raise Refusal(400, f"{field} would be lost here; {lost[field]}.", "unsupported")
        found[field] = None
    return tuple(found)


def _undeclared(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for part in value:
            yield from _undeclared(part, path)
    elif isinstance(value, BaseModel):
        extra = value.model_extra or {}
        for name, inner in value:
            field = f"{path}.{name}" if path else name
            if name in extra:
                yield field, inner
            else:
                yield from _undeclared(inner, field)


def _neutral(value: Any, known: tuple[Any, ...]) -> bool:
    same = (value == one and isinstance(value, bool) == isinstance(one, bool) for one in known)
    return not known or any(same)
