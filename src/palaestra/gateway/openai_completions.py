"""OpenAI's text completions: requests and replies.

Models take conversations, so a prompt becomes a user message, and begins a new branch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from palaestra.core.message import user
from palaestra.gateway import openai_chat
from palaestra.gateway.program_requests import Answer, Question, Received, role_of
from palaestra.gateway.request_fields import Shape, ignored
from palaestra.gateway.streaming import Chunk, Token


class CompletionRequest(Shape):
    """The supported fields of the body of `/v1/completions`."""

    model: str
    prompt: str | list[str] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(None, ge=1, le=openai_chat.MAX_CHOICES)
    best_of: Literal[1] | None = None
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0)
    stream: bool | None = None
    stream_options: openai_chat.StreamOptions | None = None
    logprobs: Literal[0] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @property
    def prompts(self) -> list[str]:
        """Return each prompt once per requested reply."""
        given = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        return [prompt for prompt in given for _ in range(self.n or 1)]


def questions(request: CompletionRequest) -> list[Question]:
    """Return a request as questions, one for each choice.

    Raises:
        HTTPError: more than `MAX_CHOICES` replies, or several in a stream.
    """
    prompts = request.prompts
    if len(prompts) > openai_chat.MAX_CHOICES:
        raise openai_chat.too_many(len(prompts))
    if request.stream and len(prompts) > 1:
        raise openai_chat.several_in_a_stream()
    return [
        Question(
            role=role_of(request.model),
            messages=(Received(user(prompt)),),
            max_tokens=request.max_tokens,
            stop=openai_chat.stops(request.stop),
            temperature=request.temperature,
            logprobs=request.logprobs is not None,
            ignored=ignored(request, openai_chat.NEUTRAL),
        )
        for prompt in prompts
    ]


def reply(answers: Sequence[Answer], request: CompletionRequest) -> dict[str, Any]:
    """Return the response body: one choice for each reply."""
    choices = [
        _choice(answer.text, answer.tokens, request, openai_chat.finish(answer)) | {"index": number}
        for number, answer in enumerate(answers)
    ]
    spent = [openai_chat.usage(answer) for answer in answers]
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    usage = {name: sum(one[name] for one in spent) for name in counted}
    head = _head(answers[0].number, answers[0].model)
    return {**head, "choices": choices, "usage": usage, "palaestra": openai_chat.about(answers)}


class CompletionEventWriter:
    """The `EventWriter` of text completions."""

    def __init__(self, request: CompletionRequest, asked: Question, model: str) -> None:
        """Write a reply of that model, which its events name."""
        self._request, self._head = request, _head(asked.number, model)

    def begin(self) -> Iterator[str]:
        yield from ()

    def more(self, chunk: Chunk) -> Iterator[str]:
        yield self._event([_choice(chunk.text, chunk.tokens, self._request, None)])

    def end(self, rest: Chunk, answer: Answer) -> Iterator[str]:
        last = _choice(rest.text, rest.tokens, self._request, openai_chat.finish(answer))
        yield self._event([last], palaestra=answer.about)
        if self._request.stream_options and self._request.stream_options.include_usage:
            yield self._event([], usage=openai_chat.usage(answer))
        yield "data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> str:
        return f"data: {json.dumps({**self._head, 'choices': choices, **more})}\n\n"


def _choice(
    text: str, tokens: Sequence[Token], request: CompletionRequest, finish: str | None
) -> dict[str, Any]:
    logprobs = None
    if request.logprobs is not None:
        texts = [text for text, _ in tokens]
        logprobs = {
            "tokens": texts,
            "token_logprobs": [value for _, value in tokens],
            "top_logprobs": None,
            "text_offset": list(accumulate(map(len, texts), initial=0))[: len(texts)],
        }
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish}


def _head(number: int, model: str) -> dict[str, Any]:
    about = {"id": f"cmpl-{number}", "object": "text_completion"}
    return {**about, "created": int(time.time()), "model": model}
