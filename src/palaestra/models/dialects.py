"""Dialects: how servers of remote models are asked, and what their answers mean.

`OPENAI` is the chat-completions protocol, which most servers speak; `ANTHROPIC` is the messages
protocol, which has no seed, a system prompt of its own, and counts tokens that its cache held
apart from the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.message import Message, picture_type
from palaestra.core.model import Finish, Prompt
from palaestra.models.endpoint import bearer

ANTHROPIC_VERSION = "2023-06-01"


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer says."""

    text: str
    finish: Finish
    logprobs: tuple[float, ...] = ()
    prompt_tokens: int = 0  # as the server counts; 0: it does not tell
    cached_tokens: int = 0  # of the prompt's, those that the server did not have to compute
    sampled_tokens: int = 0  # thoughts that are not shown included


@dataclass(frozen=True, slots=True)
class Dialect:
    """One protocol."""

    scheme: str  # the beginning of the names of its models
    title: str
    path: str  # below the base URL
    headers: Callable[[str | None], Mapping[str, str]]  # from the API key
    request: Callable[[str, Prompt, bool], dict[str, Any]]  # model, prompt, with logprobs
    reply: Callable[[Any], Reply]  # raises one of UNUSABLE for what is no answer
    logprobs: bool  # whether it knows any


UNUSABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading an answer raises that lacks what its protocol promises."""


# ── OpenAI ───────────────────────────────────────────────────────────────────


def _openai_request(model: str, prompt: Prompt, logprobs: bool) -> dict[str, Any]:
    request: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": _speaker(message), "content": _openai_content(message)}
            for message in prompt.messages
        ],
        "temperature": prompt.sampling.temperature,
        "max_tokens": prompt.sampling.max_tokens,
        "seed": prompt.seed & 0x7FFFFFFF,  # several servers take no more than 31 bits
    }
    if prompt.sampling.stop:
        request["stop"] = list(prompt.sampling.stop)
    if logprobs:
        request["logprobs"] = True
    return request


def _openai_content(message: Message) -> str | list[dict[str, Any]]:
    """Words as they are; with pictures, both as parts."""
    if not message.images:
        return message.content
    urls = (f"data:{_media(image)};base64,{image}" for image in message.images)
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": message.content}, *pictures]


def _openai_reply(answer: Any) -> Reply:
    choice = answer["choices"][0]
    usage = answer.get("usage") or {}
    logprobs = (choice.get("logprobs") or {}).get("content") or ()
    return Reply(
        text=_text(choice["message"]["content"]),
        finish=Finish.LENGTH if choice.get("finish_reason") == "length" else Finish.STOP,
        logprobs=tuple(_finite(token["logprob"]) for token in logprobs),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens")),
        sampled_tokens=_count(usage.get("completion_tokens")),
    )


# ── Anthropic ────────────────────────────────────────────────────────────────


def _anthropic_headers(key: str | None) -> dict[str, str]:
    headers = {"anthropic-version": ANTHROPIC_VERSION}
    return headers if key is None else headers | {"x-api-key": key}


def _anthropic_request(model: str, prompt: Prompt, _: bool) -> dict[str, Any]:
    told = [message.content for message in prompt.messages if message.role == "system"]
    request: dict[str, Any] = {
        "model": model,
        "messages": _turns(prompt.messages),
        "temperature": prompt.sampling.temperature,
        "max_tokens": prompt.sampling.max_tokens,
    }
    if told:
        request["system"] = "\n\n".join(told)
    if prompt.sampling.stop:
        request["stop_sequences"] = list(prompt.sampling.stop)
    return request


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """What was said by turns: nobody speaks twice in a row, or says nothing."""
    turns: list[dict[str, Any]] = []
    pictures: list[list[dict[str, Any]]] = []  # of each turn
    for message in messages:
        speaker = _speaker(message)
        if speaker == "system" or not (message.content.strip() or message.images):
            continue
        if turns and turns[-1]["role"] == speaker:
            turns[-1]["content"] += "\n\n" + message.content
        else:
            turns.append({"role": speaker, "content": message.content})
            pictures.append([])
        pictures[-1] += map(_anthropic_picture, message.images)
    for turn, seen in zip(turns, pictures, strict=True):
        if seen:
            words = [{"type": "text", "text": turn["content"]}] if turn["content"].strip() else []
            turn["content"] = [*seen, *words]
    return turns


def _anthropic_picture(image: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": _media(image), "data": image}
    return {"type": "image", "source": source}


def _anthropic_reply(answer: Any) -> Reply:
    usage = answer.get("usage") or {}
    read = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    blocks = [_text(block["text"]) for block in answer["content"] if block["type"] == "text"]
    return Reply(
        text="".join(blocks),
        finish=Finish.LENGTH if answer.get("stop_reason") == "max_tokens" else Finish.STOP,
        prompt_tokens=_count(usage.get("input_tokens")) + read + written,
        cached_tokens=read,
        sampled_tokens=_count(usage.get("output_tokens")),
    )


# ── both ─────────────────────────────────────────────────────────────────────


def _speaker(message: Message) -> str:
    # A tool message of the protocols must name the call that it answers; ours are plain words.
    return "user" if message.role == "tool" else message.role


def _media(image: str) -> str:
    return picture_type(image) or "image/png"


def _text(value: Any) -> str:
    if not isinstance(value, str | None):
        raise TypeError("content is not a text")
    return value or ""


def _count(value: Any) -> int:
    number = int(value or 0)
    if number < 0:
        raise ValueError("less than no tokens")
    return number


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not a number")
    return number


OPENAI = Dialect(
    "openai",
    "the chat-completions protocol",
    "/chat/completions",
    bearer,
    _openai_request,
    _openai_reply,
    logprobs=True,
)
ANTHROPIC = Dialect(
    "anthropic",
    "the messages protocol",
    "/messages",
    _anthropic_headers,
    _anthropic_request,
    _anthropic_reply,
    logprobs=False,
)
DIALECTS = {dialect.scheme: dialect for dialect in (OPENAI, ANTHROPIC)}
"""Scheme to dialect."""
