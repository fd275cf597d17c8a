"""Bodies of requests: JSON, of bounded size, within a bounded time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request

from palaestra.rollout.gateway.refusal import Refusal
from palaestra.rollout.gateway.strict import parsed


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take."""

    bytes: int = 8 * 2**20  # of its body
    seconds: float = 30.0  # until its body is whole


LIMITS = Limits()


async def read(request: Request, limits: Limits) -> Any:
    """The JSON of a body, as `strict` has it.

    Raises:
        Refusal: it is too large (413), too slow (408), or no JSON (400).
    """
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limits.bytes:
        raise _too_large(limits)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.bytes:
                    raise _too_large(limits)
                parts.append(part)
    except TimeoutError:
        reason = f"The body was not whole after {limits.seconds:g} seconds."
        raise Refusal(408, reason, "too_slow") from None
    except ClientDisconnect:
        raise Refusal(400, "The body ended early.", "invalid") from None
    return _parsed(b"".join(parts))


def _parsed(data: bytes) -> Any:
    try:
        return parsed(data.decode("utf-8-sig"))
    except ValueError as error:
        raise Refusal(400, f"The body is not JSON: {error}", "invalid") from None


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"The body is larger than {limits.bytes:,} bytes.", "too_large")
