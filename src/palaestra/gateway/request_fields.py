"""Fields of requests: a shape declares the supported ones; all others that are set are reported.

So no field is ignored silently, including future fields of a protocol. A field without which a part
of the conversation or the tools would be lost is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from palaestra.gateway.http_errors import HTTPError

UNSET: tuple[Any, ...] = (None, "", [], {})
NEUTRAL: Mapping[str, tuple[Any, ...]] = {  # values without effect
    "frequency_penalty": (0,),
    "min_p": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "service_tier": ("auto", "default"),
    "top_k": (0, -1),
    "top_p": (1,),
    "truncation": ("disabled",),
}
FLAG = (False,)  # the default: a switch that is off


class Shape(BaseModel):
    """The base of request models; it keeps undeclared fields so that they can be reported."""

    model_config = ConfigDict(extra="allow")


def ignored(
    request: BaseModel,
    neutral: Mapping[str, tuple[Any, ...]] = {},
    lost: Mapping[str, str] = {},
) -> tuple[str, ...]:
    """Return the set fields that their shape does not declare, such as `tools.cache_control`.

    Args:
        request: the whole request.
        neutral: values without effect in this protocol, by field, besides `NEUTRAL`; an empty
            tuple stands for all values.
        lost: fields that carry parts of the conversation or tools, and what to do instead.

    Raises:
        HTTPError: one of the `lost` is set.
    """
    found: dict[str, None] = {}
    known = {**NEUTRAL, **neutral}
    for field, value in _undeclared(request, ""):
        if value in UNSET or _neutral(value, known.get(field, FLAG)):
            continue
        if field in lost:
            raise HTTPError(400, f"{field} would be lost here; {lost[field]}.", "unsupported")
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
