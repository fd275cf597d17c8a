"""Limits on request bodies: JSON of bounded size, received in bounded time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request

from palaestra.core.strict_json import parsed
from palaestra.gateway.content import IMAGES
from palaestra.gateway.http_errors import HTTPError


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on a request."""

    bytes: int = 8 * 2**20  # of the body
    seconds: float = 30.0  # until the body is complete
    brackets: int = 400_000  # counted before parsing, including those in strings
    values: int = 100_000  # objects, lists, strings and numbers
    characters: int = 2_000_000  # of all strings except images
    tools: int = 1_000


LIMITS = Limits()


async def read(request: Request, limits: Limits) -> Any:
    """Read and parse the JSON body of a request, as in `strict_json.py`.

    Raises:
        HTTPError: the body is too large (413), too slow (408), or not JSON (400).
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.bytes:
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
        reason = f"The body was not complete after {limits.seconds:g} seconds."
        raise HTTPError(408, reason, "too_slow") from None
    except ClientDisconnect:
        raise HTTPError(400, "The body ended early.", "invalid") from None
    data = b"".join(parts)
    if data.count(b"[") + data.count(b"{") > limits.brackets:
        raise _too_much("brackets", limits.brackets)
    found = _parsed(data)
    _check(found, limits)
    return found


def _check(found: Any, limits: Limits) -> None:
    """Reject values that would take so long to process that other sessions would wait."""
    values, characters = 0, 0
    left = [found]
    while left:
        value = left.pop()
        values += 1
        if isinstance(value, dict):
            left += () if value.get("type") in IMAGES else value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            characters += len(value)
        if values + len(left) > limits.values:
            raise _too_much("values", limits.values)
    if characters > limits.characters:
        raise _too_much("characters", limits.characters)
    tools = found.get("tools") if isinstance(found, dict) else None
    if isinstance(tools, list) and len(tools) > limits.tools:
        raise _too_much("tools", limits.tools)


def _parsed(data: bytes) -> Any:
    try:
        return parsed(data.decode("utf-8-sig"))
    except ValueError as error:
        raise HTTPError(400, f"The body is not JSON: {error}", "invalid") from None


def _too_much(what: str, most: int) -> HTTPError:
    return HTTPError(413, f"The body has more than {most:,} {what}; send less.", "too_large")


def _too_large(limits: Limits) -> HTTPError:
    return HTTPError(413, f"The body is larger than {limits.bytes:,} bytes.", "too_large")
