"""Anthropic's messages protocol: requests and replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from palaestra.core.message import Image, Message, Reasoning, Text, ToolCall
from palaestra.core.model import Finish
from palaestra.core.tool import Tool
from palaestra.gateway import openai_chat
from palaestra.gateway.content import Part, Source, image, result, texts
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.program_requests import Answer, Question, Received, role_of
from palaestra.gateway.request_fields import Shape, ignored
from palaestra.gateway.streaming import Chunk
from palaestra.gateway.structured_output import Form, Format, form_of

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "messages.content.caller": (),  # on replies sent back
    "messages.content.citations": (),
    "service_tier": ("auto", "standard_only"),
    "tools.type": ("custom",),
}
LOST = {"mcp_servers": "give the servers' tools as tools"}
REDACTED = "redacted_thinking"  # the gateway never sends such blocks
FIELDS = {
    "error": "messages.content.is_error",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "reasoning": "messages.thinking",
}
EFFORTS = (("low", 2048), ("medium", 8192))  # with the largest token budget of each
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Block(Shape):
    """A block of a message: text, an image, reasoning, a call, or its result."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: str | list[Part] | None = None
    source: Source | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None  # of redacted thinking, which is dropped


class Turn(Shape):
    """One message."""

    role: Literal["user", "assistant"]
    content: str | list[Block]


class InputTool(Shape):
    """A tool."""

    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None


class Choice(Shape):
    """The choice of a tool."""

    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Shape):
    """The options of reasoning."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None


class OutputConfig(Shape):
    """The options of the reply."""

    format: Format | None = None
    effort: str | None = None


class MessagesRequest(Shape):
    """The supported fields of the body of `/anthropic/v1/messages`."""

    model: str
    max_tokens: int = Field(ge=1)
    messages: list[Turn] = Field(min_length=1)
    system: str | list[Part] | None = None
    tools: list[InputTool | openai_chat.OtherTool] | None = None
    tool_choice: Choice | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    stream: bool | None = None
    thinking: Thinking | None = None
    output_format: Format | None = None
    output_config: OutputConfig | None = None  # the newer field for the format


class CountRequest(MessagesRequest):
    """The body of `/anthropic/v1/messages/count_tokens`."""

    max_tokens: int = Field(1, ge=1)


def question(request: MessagesRequest) -> Question:
    """Return a request as a question.

    Raises:
        HTTPError: a block has an unknown type, or the chosen tool has no name.
    """
    choice = request.tool_choice or Choice(type="auto")
    if choice.type == "tool" and not choice.name:
        raise HTTPError(400, "tool_choice: name the tool to call.", "invalid")
    effort, field = _effort(request)
    instructions = texts(request.system)
    return Question(
        role=role_of(request.model),
        messages=(
            *([Received(Message("system", instructions))] if instructions else []),
            *(received for turn in request.messages for received in _received(turn)),
        ),
        tools=tuple(
            Tool(t.name, t.description or "", t.input_schema)
            for t in request.tools or ()
            if isinstance(t, InputTool)
        ),
        tool_choice=CHOICES.get(choice.type) or choice.name or "auto",
        parallel_tool_calls=False if choice.disable_parallel_tool_use else None,
        reasoning_effort=effort,
        max_tokens=request.max_tokens,
        stop=openai_chat.stops(request.stop_sequences),
        temperature=request.temperature,
        form=_form(request),
        fields=FIELDS | {"reasoning_effort": field},
        ignored=(
            *ignored(request, NEUTRAL, LOST),
            *openai_chat.left_out(request.tools or ()),
            *(["prefill"] if request.messages[-1].role == "assistant" else []),
            *(["messages.thinking"] if _redacted(request) else []),
            *(["thinking.budget_tokens"] if _budget(request) else []),
        ),
    )


def reply(answer: Answer) -> dict[str, Any]:
    """Return the response body."""
    spent, cached = openai_chat.usage(answer), openai_chat.cached(answer)
    return {
        **_head(answer.number, answer.model),
        "content": _blocks(answer),
        "stop_reason": _reason(answer),
        "stop_sequence": None if answer.tool_calls else answer.stopped,
        "usage": {
            "input_tokens": spent["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": spent["completion_tokens"],
        },
        "palaestra": answer.about,
    }


class MessagesEventWriter:
    """The `EventWriter` of the messages protocol.

    The number of prompt tokens is sent at the end, when it is known.
    """

    def __init__(self, asked: Question, model: str) -> None:
        """Write a reply of that model, which the first event names."""
        self._head = _head(asked.number, model)
        self._index = -1  # of the last block that was started
        self._open: str | None = None  # the type of the open block

    def begin(self) -> Iterator[str]:
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        usage = {"input_tokens": 0, "output_tokens": 0}
        yield _event("message_start", message={**self._head, **nothing, "usage": usage})

    def more(self, chunk: Chunk) -> Iterator[str]:
        if chunk.reasoning:
            yield from self._block({"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta("thinking_delta", thinking=chunk.reasoning)
        if chunk.text:
            yield from self._block({"type": "text", "text": ""})
            yield self._delta("text_delta", text=chunk.text)

    def end(self, rest: Chunk, answer: Answer) -> Iterator[str]:
        whole = reply(answer)
        if rest.reasoning:
            yield from self.more(Chunk("", rest.reasoning, ()))
        if answer.generation.signature and self._open in (None, "thinking"):
            yield from self._block({"type": "thinking", "thinking": "", "signature": ""})
            yield self._delta("signature_delta", signature=answer.generation.signature)
        if rest.text or not (answer.tool_calls or self._open == "text"):
            yield from self._block({"type": "text", "text": ""})
            yield self._delta("text_delta", text=rest.text)
        for call in answer.tool_calls:
            yield from self._block({**_tool_use(call), "input": {}}, new=True)
            arguments = json.dumps(dict(call.arguments))
            yield self._delta("input_json_delta", partial_json=arguments)
        yield from self._close()
        ending = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        about = {"usage": whole["usage"], "palaestra": answer.about}
        yield _event("message_delta", delta=ending, **about)
        yield _event("message_stop")

    def _block(self, empty: dict[str, Any], *, new: bool = False) -> Iterator[str]:
        """Yield the start of a block, unless a block of that type is open and `new` is false."""
        if self._open == empty["type"] and not new:
            return
        yield from self._close()
        self._index, self._open = self._index + 1, empty["type"]
        yield _event("content_block_start", index=self._index, content_block=empty)

    def _close(self) -> Iterator[str]:
        if self._open is not None:
            yield _event("content_block_stop", index=self._index)
            self._open = None

    def _delta(self, kind: str, **data: str) -> str:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **data})


def _received(turn: Turn) -> Iterator[Received]:
    """Yield the messages of a turn: each tool result, then the rest of its content."""
    if isinstance(turn.content, str):
        yield Received(Message(turn.role, texts(turn.content)))
        return
    parts: list[Text | Image | Reasoning | ToolCall] = []
    for block in turn.content:
        match block.type:
            case "text" if block.text is not None:
                parts += texts(block.text)
            case "thinking" if block.thinking is not None and turn.role == "assistant":
                parts.append(Reasoning(block.thinking, block.signature or ""))
            case "tool_use" if block.name and block.id and turn.role == "assistant":
                parts.append(ToolCall(block.name, block.input or {}, block.id))
            case "tool_result" if block.tool_use_id and turn.role == "user":
                error = bool(block.is_error)
                yield Received(result(block.content, block.tool_use_id, error=error))
            case "image" if turn.role == "user" and block.source is not None:
                parts.append(image(block.source.data_url))
            case "redacted_thinking":
                continue
            case _:
                raise HTTPError(400, f"A block of the type '{block.type}' is not supported.")
    if parts or not turn.content:
        yield Received(Message(turn.role, tuple(parts)))


def _effort(request: MessagesRequest) -> tuple[str | None, str]:
    """Return the reasoning effort, and the field that sets it."""
    config, thinking = request.output_config, request.thinking
    if config is not None and config.effort is not None:
        return config.effort, "output_config.effort"
    if thinking is None or thinking.type == "disabled":
        return "none" if thinking else None, "thinking"
    budget = thinking.budget_tokens
    small = (name for name, most in EFFORTS if budget is not None and budget <= most)
    return next(small, "high"), "thinking"


def _form(request: MessagesRequest) -> Form | None:
    config = request.output_config
    if config is not None and config.format is not None:
        return form_of(config.format, "output_config.format")
    return form_of(request.output_format, "output_format")


def _budget(request: MessagesRequest) -> bool:
    """Return whether the request sets a token budget, which becomes an effort."""
    return request.thinking is not None and request.thinking.budget_tokens is not None


def _redacted(request: MessagesRequest) -> bool:
    blocks = (turn.content for turn in request.messages if not isinstance(turn.content, str))
    return any(block.type == REDACTED for content in blocks for block in content)


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    made = answer.generation
    if made.reasoning or made.signature:
        thought = {"thinking": made.reasoning, "signature": made.signature}
        blocks.append({"type": "thinking", **thought})
    if answer.text or not answer.tool_calls:
        blocks.append({"type": "text", "text": answer.text})
    return [*blocks, *map(_tool_use, answer.tool_calls)]


def _tool_use(call: ToolCall) -> dict[str, Any]:
    about = {"type": "tool_use", "id": call.id, "name": call.name}
    return {**about, "input": dict(call.arguments)}


def _reason(answer: Answer) -> str:
    if answer.tool_calls:
        return "tool_use"
    if answer.stopped is not None:
        return "stop_sequence"
    return "max_tokens" if answer.generation.finish is Finish.LENGTH else "end_turn"


def _head(number: int, model: str) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"
