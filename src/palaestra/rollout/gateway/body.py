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
    brackets: int = 400_000  # counted before it is parsed, those in its texts as well
    values: int = 100_000  # objects, lists, texts and numbers
    characters: int = 2_000_000  # of its texts, pictures apart
    tools: int = 1_000


PICTURES = ("image", "image_url", "input_image")  # parts whose texts are no words


LIMITS = Limits()


async def read(request: Request, limits: Limits) -> Any:
    """The JSON of a body, as `strict` has it.

    Raises:
        Refusal: it is too large or holds too much (413), too slow (408), or no JSON (400).
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
    data = b"".join(parts)
    if data.count(b"[") + data.count(b"{") > limits.brackets:
        raise _too_much("brackets", limits.brackets)
    found = _parsed(data)
    _check(found, limits)
    return found


def _check(found: Any, limits: Limits) -> None:
    """Refuse what would keep all sessions waiting while it is understood."""
    values, characters = 0, 0
    left = [found]
    while left:
        value = left.pop()
        values += 1
        if isinstance(value, dict):
            left += () if value.get("type") in PICTURES else value.values()
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
        raise Refusal(400, f"The body is not JSON: {error}", "invalid") from None


def _too_much(what: str, most: int) -> Refusal:
    return Refusal(413, f"The body has more than {most:,} {what}; send less.", "too_large")


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"The body is larger than {limits.bytes:,} bytes.", "too_large")
