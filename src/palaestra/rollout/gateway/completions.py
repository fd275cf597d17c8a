"""OpenAI's text completions, in and out.

The models here speak in conversations, so a prompt is told as a user's message, and begins a branch
of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from palaestra.rollout.gateway import chat
from palaestra.rollout.gateway.conversation import Answer, Question, Said
from palaestra.rollout.gateway.fields import Shape, ignored
from palaestra.rollout.gateway.telling import Known, Piece


class CompletionRequest(Shape):
    """The body of `/v1/completions`, as far as it is honoured."""

    model: str
    prompt: str | list[str] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(None, ge=1, le=chat.CHOICES)
    best_of: Literal[1] | None = None
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0)
    stream: bool | None = None
    stream_options: chat.StreamOptions | None = None
    logprobs: Literal[0] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @property
    def prompts(self) -> list[str]:
        """Each prompt as often as a reply to it is wanted."""
        given = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        return [prompt for prompt in given for _ in range(self.n or 1)]


def questions(request: CompletionRequest) -> list[Question]:
    """What a request asks, one for each choice.

    Raises:
        Refusal: more than `chat.CHOICES` replies, or several in a stream.
    """
    prompts = request.prompts
    if len(prompts) > chat.CHOICES:
        raise chat.too_many(len(prompts))
    if request.stream and len(prompts) > 1:
        raise chat.several_in_a_stream()
    return [
        Question(
            messages=(Said("user", prompt),),
            max_tokens=request.max_tokens,
            stop=chat.stops(request.stop),
            temperature=request.temperature,
            logprobs=None if request.logprobs is None else "logprobs",
            ignored=ignored(request, chat.NEUTRAL),
        )
        for prompt in prompts
    ]


def reply(answers: Sequence[Answer], request: CompletionRequest) -> dict[str, Any]:
    """The whole answer: one choice for each reply."""
    choices = [
        _choice(answer.content, answer.known, request, chat.finish(answer)) | {"index": number}
        for number, answer in enumerate(answers)
    ]
    spent = [chat.usage(answer) for answer in answers]
    usage = {name: sum(one[name] for one in spent) for name in spent[0]}
    head = _head(answers[0].number, answers[0].model)
    return {**head, "choices": choices, "usage": usage, "palaestra": chat.about(answers)}


class Parts:
    """The same as server-sent events, while it is sampled; a `Teller`."""

    def __init__(self, request: CompletionRequest, asked: Question, model: str) -> None:
        """Of a reply of that model, which its parts name."""
        self._request, self._head = request, _head(asked.number, model)

    def begin(self) -> Iterator[str]:
        yield from ()

    def more(self, part: Piece) -> Iterator[str]:
        yield self._event([_choice(part.words, part.tokens, self._request, None)])

    def end(self, rest: Piece, answer: Answer) -> Iterator[str]:
        last = _choice(rest.words, rest.tokens, self._request, chat.finish(answer))
        yield self._event([last], palaestra=answer.about)
        if self._request.stream_options and self._request.stream_options.include_usage:
            yield self._event([], usage=chat.usage(answer))
        yield "data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> str:
        return f"data: {json.dumps({**self._head, 'choices': choices, **more})}\n\n"


def _choice(
    text: str, tokens: Sequence[Known], request: CompletionRequest, finish: str | None
) -> dict[str, Any]:
    logprobs = None
    if request.logprobs is not None:
        pieces = [piece for piece, _ in tokens]
        logprobs = {
            "tokens": pieces,
            "token_logprobs": [value for _, value in tokens],
            "top_logprobs": None,
            "text_offset": list(accumulate(map(len, pieces), initial=0))[: len(pieces)],
        }
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish}


def _head(number: int, model: str) -> dict[str, Any]:
    about = {"id": f"cmpl-{number}", "object": "text_completion"}
    return {**about, "created": int(time.time()), "model": model}
