"""OpenAI's chat completions, in and out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from palaestra.core.model import Finish
from palaestra.core.tool import Tool
from palaestra.rollout.gateway import pictures
from palaestra.rollout.gateway.conversation import Answer, Called, Question, Said
from palaestra.rollout.gateway.fields import Shape, ignored
from palaestra.rollout.gateway.forms import Format, form_of
from palaestra.rollout.gateway.refusal import Refusal
from palaestra.rollout.gateway.strict import parsed
from palaestra.rollout.gateway.telling import Known, Piece

CHOICES = 16  # replies to one request, at most
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "messages.annotations": (),  # of replies, as they come back
    "messages.content.image_url.detail": ("auto",),
    "messages.tool_calls.index": (),
    "modalities": (["text"],),
    "stream_options.include_obfuscation": (False, True),
}
LOST = {
    "functions": "give them as tools",
    "messages.audio": "send what was said as text",
    "messages.function_call": "give calls as tool_calls",
}
NO_PARAMETERS = {"type": "object", "properties": {}}


class Linked(Shape):
    """Where a picture is: its data, in the address itself."""

    url: str


class Source(Shape):
    """A picture's data."""

    type: str
    media_type: str | None = None
    data: str | None = None

    @property
    def address(self) -> str:
        """The same as an address; empty where it is not here."""
        return f"data:;base64,{self.data or ''}" if self.type == "base64" else ""


class Part(Shape):
    """A part of a message's content."""

    type: str
    text: str | None = None
    image_url: Linked | str | None = None  # of a picture, as OpenAI's protocols send it
    source: Source | None = None  # of a picture, as Anthropic's does

    @property
    def address(self) -> str:
        """Where its picture is; empty where it says nothing of the kind."""
        if self.source is not None:
            return self.source.address
        linked = self.image_url
        return linked.url if isinstance(linked, Linked) else linked or ""


class Function(Shape):
    """What a tool is."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class FunctionTool(Shape):
    """A tool."""

    type: Literal["function"]
    function: Function


class OtherTool(BaseModel):
    """A tool that is no function, such as one that a provider hosts; it is left out, and named."""

    type: str

    @field_validator("type")
    @classmethod
    def _no_function(cls, type: str) -> str:
        if type == "function":
            raise ValueError("this is no function's definition")
        return type


class CalledFunction(Shape):
    """What a call calls."""

    name: str = Field(min_length=1)
    arguments: str = "{}"


class ToolCall(Shape):
    """A call in an assistant's message."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Shape):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Named(Shape):
    """The name in a choice of a tool."""

    name: str


class NamedFunction(Shape):
    """A choice of one tool."""

    type: Literal["function"]
    function: Named


class StreamOptions(Shape):
    """What a stream tells besides."""

    include_usage: bool | None = None


class ChatRequest(Shape):
    """The body of `/v1/chat/completions`, as far as it is honoured."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[FunctionTool | OtherTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    n: int | None = Field(None, ge=1, le=CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    response_format: Format | None = None


def question(request: ChatRequest) -> Question:
    """What a request asks.

    Raises:
        Refusal: it asks for what there is not, such as several replies in a stream.
    """
    if request.stream and (request.n or 1) > 1:
        raise several_in_a_stream()
    chosen = request.tool_choice or "auto"
    choice = chosen if isinstance(chosen, str) else chosen.function.name
    newer = request.max_completion_tokens is not None
    tools = request.tools or []
    return Question(
        messages=tuple(_said(message) for message in request.messages),
        tools=tuple(_tool(tool.function) for tool in tools if isinstance(tool, FunctionTool)),
        choice=choice,
        max_tokens=request.max_completion_tokens if newer else request.max_tokens,
        limit="max_completion_tokens" if newer else "max_tokens",
        stop=stops(request.stop),
        temperature=request.temperature,
        form=form_of(request.response_format, "response_format"),
        logprobs="logprobs" if request.logprobs else None,
        ignored=(*ignored(request, NEUTRAL, LOST), *left_out(tools), *forced(choice)),
    )


def reply(answers: Sequence[Answer], request: ChatRequest) -> dict[str, Any]:
    """The whole answer: one choice for each reply."""
    first = answers[0]
    choices = [_whole(answer, request) | {"index": n} for n, answer in enumerate(answers)]
    head = _head(first.number, "chat.completion", first.model)
    return {**head, "choices": choices, "usage": usage(*answers), "palaestra": about(answers)}


def _whole(answer: Answer, request: ChatRequest) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
    if answer.calls:
        message["content"] = answer.content or None
        message["tool_calls"] = [_call(call) for call in answer.calls]
    return {
        "message": message,
        "logprobs": logprobs(answer.known) if request.logprobs else None,
        "finish_reason": finish(answer),
    }


class Chunks:
    """The same as server-sent events, while it is sampled; a `Teller`."""

    def __init__(self, request: ChatRequest, asked: Question, model: str) -> None:
        """Of a reply of that model, which its chunks name."""
        self._request = request
        self._head = _head(asked.number, "chat.completion.chunk", model)

    def begin(self) -> Iterator[str]:
        yield self._chunk({"role": "assistant", "content": ""})

    def more(self, part: Piece) -> Iterator[str]:
        yield self._chunk({"content": part.words}, part.tokens)

    def end(self, rest: Piece, answer: Answer) -> Iterator[str]:
        tokens = rest.tokens  # the last chunk's, where there are no words for them
        if rest.words:
            yield from self.more(rest)
            tokens = ()
        for number, call in enumerate(answer.calls):
            yield self._chunk({"tool_calls": [{"index": number, **_call(call)}]})
        last = self._choice({}, tokens) | {"finish_reason": finish(answer)}
        yield _event({**self._head, "choices": [last], "palaestra": answer.about})
        options = self._request.stream_options
        if options is not None and options.include_usage:
            yield _event({**self._head, "choices": [], "usage": usage(answer)})
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], tokens: Sequence[Known] = ()) -> str:
        return _event({**self._head, "choices": [self._choice(delta, tokens)]})

    def _choice(self, delta: dict[str, Any], tokens: Sequence[Known]) -> dict[str, Any]:
        told = {"logprobs": logprobs(tokens)} if self._request.logprobs and tokens else {}
        return {"index": 0, "delta": delta, "finish_reason": None, **told}


# ── what other protocols share ───────────────────────────────────────────────


def text_of(content: str | list[Part] | None, kinds: tuple[str, ...] = ("text",)) -> str:
    """The words of a content; raises Refusal for anything that is not words."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in kinds or part.text is None:
            raise Refusal(400, f"A part of the type '{part.type}' is no text.", "invalid")
    return "\n".join(part.text or "" for part in content)


def images_of(content: str | list[Part] | None) -> tuple[str, ...]:
    """The pictures of a content; raises Refusal for what is none that models take."""
    parts = content if isinstance(content, list) else []
    return tuple(pictures.picture(part.address) for part in parts if part.type in pictures.KINDS)


def words_of(content: str | list[Part] | None, kinds: tuple[str, ...] = ("text",)) -> str:
    """The words of a content that may show pictures as well; raises Refusal like `text_of`."""
    if not isinstance(content, list):
        return content or ""
    return text_of([part for part in content if part.type not in pictures.KINDS], kinds)


def left_out(tools: Sequence[BaseModel]) -> tuple[str, ...]:
    """The tools that are none to be called here, as `ignored` names them."""
    others = (tool.type for tool in tools if isinstance(tool, OtherTool))
    return tuple(f"tools.{kind}" for kind in dict.fromkeys(others))


def several_in_a_stream() -> Refusal:
    """What is answered to whoever wants several replies told at once."""
    return Refusal(400, "n: a stream tells one reply; ask for several without stream.", "invalid")


def too_many(asked: int) -> Refusal:
    """What is answered to whoever wants more replies than one request may bring."""
    return Refusal(400, f"{asked} replies are asked for, and {CHOICES} is the most.", "invalid")


def about(answers: Sequence[Answer]) -> dict[str, Any]:
    """What is said of the record; of several replies, that of each under `choices`."""
    first = answers[0].about
    return first if len(answers) == 1 else {**first, "choices": [one.about for one in answers]}


def arguments_of(text: str) -> dict[str, Any] | str:
    """The arguments of a call as a program sends them back."""
    try:
        found = parsed(text or "{}")
    except ValueError:
        return text
    return found if isinstance(found, dict) else text


def stops(given: str | list[str] | None) -> tuple[str, ...]:
    """Stop strings; empty ones, which would stop everything, are left out."""
    listed = [given] if isinstance(given, str) else given or []
    return tuple(stop for stop in listed if stop)


def forced(choice: str) -> tuple[str, ...]:
    """The field that asks for calls: the model is told so, and may say something else."""
    return () if choice in ("auto", "none") else ("tool_choice",)


def logprobs(tokens: Sequence[Known]) -> dict[str, Any]:
    """Of each token; what else might have been sampled is not known."""
    return {"content": token_logprobs(tokens), "refusal": None}


def token_logprobs(tokens: Sequence[Known]) -> list[dict[str, Any]]:
    """The tokens with the log-probabilities that the sampler drew them by."""
    return [
        {"token": piece, "logprob": value, "bytes": list(piece.encode()), "top_logprobs": []}
        for piece, value in tokens
    ]


def usage(*answers: Answer) -> dict[str, int]:
    """Tokens read (once for replies to the same) and sampled; 0 where a model does not tell."""
    made = [answer.generation for answer in answers]
    read = max(one.prompt_tokens for one in made)
    sampled = sum(len(one.tokens) or one.sampled_tokens for one in made)
    return {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}


def finish(answer: Answer) -> str:
    """Why the reply ended, in OpenAI's words."""
    if answer.calls:
        return "tool_calls"
    return "length" if answer.generation.finish is Finish.LENGTH else "stop"


def _said(message: ChatMessage) -> Said:
    role = "system" if message.role == "developer" else message.role
    calls = tuple(
        Called(call.id, call.function.name, arguments_of(call.function.arguments))
        for call in message.tool_calls or ()
    )
    if role in ("user", "tool"):
        seen = images_of(message.content)
        return Said(role, words_of(message.content), calls, seen, message.tool_call_id)
    return Said(role, text_of(message.content), calls)


def _tool(function: Function) -> Tool:
    return Tool(function.name, function.description or "", function.parameters or NO_PARAMETERS)


def _call(call: Called) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.as_json}
    return {"id": call.id, "type": "function", "function": function}


def _head(number: int, kind: str, model: str) -> dict[str, Any]:
    about = {"id": f"chatcmpl-{number}", "object": kind}
    return {**about, "created": int(time.time()), "model": model}


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
