"""OpenAI's chat completions: requests and replies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from palaestra.core.message import Message, Reasoning, ToolCall
from palaestra.core.model import Finish
from palaestra.core.tool import Tool, arguments_of, arguments_text
from palaestra.gateway.content import Part, result, texts, texts_and_images
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.program_requests import (
    Answer,
    Question,
    Received,
    role_of,
)
from palaestra.gateway.request_fields import Shape, ignored
from palaestra.gateway.streaming import Chunk, Token
from palaestra.gateway.structured_output import Format, form_of

MAX_CHOICES = 16  # maximum replies per request
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "messages.annotations": (),  # on replies sent back
    "messages.content.image_url.detail": ("auto",),
    "messages.tool_calls.index": (),
    "modalities": (["text"],),
    "stream_options.include_obfuscation": (False, True),
}
LOST = {
    "functions": "give them as tools",
    "messages.audio": "send the transcript as text",
    "messages.function_call": "give calls as tool_calls",
}
FIELDS = {"reasoning": "messages.reasoning_content"}
NO_PARAMETERS = {"type": "object", "properties": {}}


class Function(Shape):
    """The definition of a tool."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class FunctionTool(Shape):
    """A tool."""

    type: Literal["function"]
    function: Function


class OtherTool(BaseModel):
    """A tool that is not a function, such as a provider's; it is left out and reported."""

    type: str

    @field_validator("type")
    @classmethod
    def _no_function(cls, type: str) -> str:
        if type == "function":
            raise ValueError("this is no function's definition")
        return type


class CalledFunction(Shape):
    """The name and the arguments of a call."""

    name: str = Field(min_length=1)
    arguments: str = "{}"


class SentCall(Shape):
    """A call in an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Shape):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    reasoning_content: str | None = None  # as in DeepSeek, vLLM and others
    tool_calls: list[SentCall] | None = None
    tool_call_id: str | None = None


class Named(Shape):
    """The name of a chosen tool."""

    name: str


class NamedFunction(Shape):
    """A choice of one tool."""

    type: Literal["function"]
    function: Named


class StreamOptions(Shape):
    """The options of a stream."""

    include_usage: bool | None = None


class ChatRequest(Shape):
    """The supported fields of the body of `/v1/chat/completions`."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[FunctionTool | OtherTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    response_format: Format | None = None


def question(request: ChatRequest) -> Question:
    """Return a request as a question.

    Raises:
        HTTPError: it asks for something unsupported, such as several replies in a stream.
    """
    if request.stream and (request.n or 1) > 1:
        raise several_in_a_stream()
    chosen = request.tool_choice or "auto"
    choice = chosen if isinstance(chosen, str) else chosen.function.name
    newer = request.max_completion_tokens is not None
    tools = request.tools or []
    return Question(
        role=role_of(request.model),
        messages=tuple(_received(message) for message in request.messages),
        tools=tuple(_tool(tool.function) for tool in tools if isinstance(tool, FunctionTool)),
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning_effort=request.reasoning_effort,
        max_tokens=request.max_completion_tokens if newer else request.max_tokens,
        stop=stops(request.stop),
        temperature=request.temperature,
        form=form_of(request.response_format, "response_format"),
        logprobs=bool(request.logprobs),
        fields=FIELDS | ({"max_tokens": "max_completion_tokens"} if newer else {}),
        ignored=(*ignored(request, NEUTRAL, LOST), *left_out(tools)),
    )


def reply(answers: Sequence[Answer], request: ChatRequest) -> dict[str, Any]:
    """Return the response body: one choice for each reply."""
    first = answers[0]
    choices = [_whole(answer, request) | {"index": n} for n, answer in enumerate(answers)]
    head = _head(first.number, "chat.completion", first.model)
    return {**head, "choices": choices, "usage": usage(*answers), "palaestra": about(answers)}


def _whole(answer: Answer, request: ChatRequest) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.generation.reasoning:
        message["reasoning_content"] = answer.generation.reasoning
    if answer.tool_calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [_call(call) for call in answer.tool_calls]
    return {
        "message": message,
        "logprobs": logprobs(answer.tokens) if request.logprobs else None,
        "finish_reason": finish(answer),
    }


class ChatEventWriter:
    """The `EventWriter` of chat completions."""

    def __init__(self, request: ChatRequest, asked: Question, model: str) -> None:
        """Write a reply of that model, which its events name."""
        self._request = request
        self._head = _head(asked.number, "chat.completion.chunk", model)

    def begin(self) -> Iterator[str]:
        yield self._chunk({"role": "assistant", "content": ""})

    def more(self, chunk: Chunk) -> Iterator[str]:
        delta = {"reasoning_content": chunk.reasoning, "content": chunk.text}
        yield self._chunk({name: text for name, text in delta.items() if text}, chunk.tokens)

    def end(self, rest: Chunk, answer: Answer) -> Iterator[str]:
        tokens = rest.tokens  # of the last event, if no text is left
        if rest.text or rest.reasoning:
            yield from self.more(rest)
            tokens = ()
        for number, call in enumerate(answer.tool_calls):
            yield self._chunk({"tool_calls": [{"index": number, **_call(call)}]})
        last = self._choice({}, tokens) | {"finish_reason": finish(answer)}
        yield _event({**self._head, "choices": [last], "palaestra": answer.about})
        options = self._request.stream_options
        if options is not None and options.include_usage:
            yield _event({**self._head, "choices": [], "usage": usage(answer)})
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], tokens: Sequence[Token] = ()) -> str:
        return _event({**self._head, "choices": [self._choice(delta, tokens)]})

    def _choice(self, delta: dict[str, Any], tokens: Sequence[Token]) -> dict[str, Any]:
        known = {"logprobs": logprobs(tokens)} if self._request.logprobs and tokens else {}
        return {"index": 0, "delta": delta, "finish_reason": None, **known}


# ── shared with other protocols ──────────────────────────────────────────────


def left_out(tools: Sequence[BaseModel]) -> tuple[str, ...]:
    """Return the tools that cannot be called, as `ignored` names them."""
    others = (tool.type for tool in tools if isinstance(tool, OtherTool))
    return tuple(f"tools.{kind}" for kind in dict.fromkeys(others))


def several_in_a_stream() -> HTTPError:
    """Return the error for several replies in one stream."""
    return HTTPError(400, "n: a stream sends one reply; ask for several without stream.", "invalid")


def too_many(asked: int) -> HTTPError:
    """Return the error for more than `MAX_CHOICES` replies."""
    return HTTPError(
        400, f"{asked} replies are asked for, and {MAX_CHOICES} is the most.", "invalid"
    )


def about(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the `palaestra` field of a response; of several replies, each under `choices`."""
    first = answers[0].about
    return first if len(answers) == 1 else {**first, "choices": [one.about for one in answers]}


def stops(given: str | list[str] | None) -> tuple[str, ...]:
    """Return stop strings without empty ones, which would match everywhere."""
    listed = [given] if isinstance(given, str) else given or []
    return tuple(stop for stop in listed if stop)


def logprobs(tokens: Sequence[Token]) -> dict[str, Any]:
    """Return the log-probability of each token; alternatives are not known."""
    return {"content": token_logprobs(tokens), "refusal": None}


def token_logprobs(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """Return the sampled tokens with their log-probabilities."""
    return [
        {"token": chunk, "logprob": value, "bytes": list(chunk.encode()), "top_logprobs": []}
        for chunk, value in tokens
    ]


def usage(*answers: Answer) -> dict[str, Any]:
    """Return prompt tokens (of a shared prompt once) and completion tokens; 0 if unknown."""
    made = [answer.generation for answer in answers]
    read = max(one.prompt_tokens for one in made)
    sampled = sum(len(one.tokens) or one.sampled_tokens for one in made)
    return {
        "prompt_tokens": read,
        "completion_tokens": sampled,
        "total_tokens": read + sampled,
        "prompt_tokens_details": {"cached_tokens": cached(answers[0])},
    }


def cached(answer: Answer) -> int:
    """Return the number of prompt tokens found in a cache; 0 if unknown."""
    computed = answer.generation.computed_tokens
    return max(0, answer.generation.prompt_tokens - computed) if computed else 0


def finish(answer: Answer) -> str:
    """Return the finish reason in OpenAI's protocols."""
    if answer.tool_calls:
        return "tool_calls"
    return "length" if answer.generation.finish is Finish.LENGTH else "stop"


def _received(message: ChatMessage) -> Received:
    if message.role == "assistant":
        thought = [Reasoning(message.reasoning_content)] if message.reasoning_content else []
        calls = [
            ToolCall(call.function.name, arguments_of(call.function.arguments), call.id)
            for call in message.tool_calls or ()
        ]
        return Received(Message("assistant", (*thought, *texts(message.content), *calls)))
    if message.role == "tool":
        return Received(result(message.content, message.tool_call_id or ""))
    if message.role == "user":
        return Received(Message("user", texts_and_images(message.content)))
    return Received(Message("system", texts(message.content)))


def _tool(function: Function) -> Tool:
    return Tool(function.name, function.description or "", function.parameters or NO_PARAMETERS)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_text(call)}
    return {"id": call.id, "type": "function", "function": function}


def _head(number: int, kind: str, model: str) -> dict[str, Any]:
    about = {"id": f"chatcmpl-{number}", "object": kind}
    return {**about, "created": int(time.time()), "model": model}


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
