"""Anthropic's messages, in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from palaestra.core.model import Finish
from palaestra.core.tool import Tool
from palaestra.rollout.gateway import chat, pictures
from palaestra.rollout.gateway.conversation import Answer, Called, Question, Said
from palaestra.rollout.gateway.fields import Shape, ignored
from palaestra.rollout.gateway.forms import Form, Format, form_of
from palaestra.rollout.gateway.refusal import Refusal
from palaestra.rollout.gateway.telling import Piece

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "messages.content.caller": (),  # of replies, as they come back
    "messages.content.citations": (),
    "service_tier": ("auto", "standard_only"),
    "thinking": ({"type": "disabled"},),
    "tools.type": ("custom",),
}
LOST = {"mcp_servers": "give the tools of servers as tools"}
THOUGHTS = ("thinking", "redacted_thinking")  # blocks that are never made here
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class Block(Shape):
    """A block of a message: words, a call, or what it was answered."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[chat.Part] | None = None
    source: chat.Source | None = None


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
    """Which tool to call."""

    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None


class OutputConfig(Shape):
    """How to reply."""

    format: Format | None = None


class MessagesRequest(Shape):
    """The body of `/anthropic/v1/messages`, as far as it is honoured."""

    model: str
    max_tokens: int = Field(ge=1)
    messages: list[Turn] = Field(min_length=1)
    system: str | list[chat.Part] | None = None
    tools: list[InputTool | chat.OtherTool] | None = None
    tool_choice: Choice | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    stream: bool | None = None
    output_format: Format | None = None
    output_config: OutputConfig | None = None  # the newer place of the format


class CountRequest(MessagesRequest):
    """The body of `/anthropic/v1/messages/count_tokens`."""

    max_tokens: int = Field(1, ge=1)


def question(request: MessagesRequest) -> Question:
    """What a request asks.

    Raises:
        Refusal: a block that is neither words nor of a call.
    """
    choice = request.tool_choice or Choice(type="auto")
    if choice.type == "tool" and not choice.name:
        raise Refusal(400, "tool_choice: name the tool to call.", "invalid")
    wanted = CHOICES.get(choice.type) or choice.name or "auto"
    told = chat.text_of(request.system)
    return Question(
        messages=(
            *([Said("system", told)] if told else []),
            *(said for turn in request.messages for said in _said(turn)),
        ),
        tools=tuple(
            Tool(t.name, t.description or "", t.input_schema)
            for t in request.tools or ()
            if isinstance(t, InputTool)
        ),
        choice=wanted,
        max_tokens=request.max_tokens,
        stop=chat.stops(request.stop_sequences),
        temperature=request.temperature,
        form=_form(request),
        ignored=(
            *ignored(request, NEUTRAL, LOST),
            *chat.left_out(request.tools or ()),
            *chat.forced(wanted),
            *(["prefill"] if request.messages[-1].role == "assistant" else []),
            *(["messages.thinking"] if _thought(request) else []),
        ),
    )


def reply(answer: Answer) -> dict[str, Any]:
    """The whole answer."""
    spent = chat.usage(answer)
    return {
        **_head(answer.number, answer.model),
        "content": _blocks(answer),
        "stop_reason": _reason(answer),
        "stop_sequence": None if answer.calls else answer.stopped,
        "usage": {
            "input_tokens": spent["prompt_tokens"],
            "output_tokens": spent["completion_tokens"],
        },
        "palaestra": answer.about,
    }


class Blocks:
    """The same as server-sent events, while it is sampled; a `Teller`.

    How many tokens were read is told at the end, when it is known.
    """

    def __init__(self, asked: Question, model: str) -> None:
        """Of a reply of that model, which its first event names."""
        self._head = _head(asked.number, model)
        self._spoken = False  # whether the block of words was begun

    def begin(self) -> Iterator[str]:
        nothing: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
        usage = {"input_tokens": 0, "output_tokens": 0}
        yield _event("message_start", message={**self._head, **nothing, "usage": usage})

    def more(self, part: Piece) -> Iterator[str]:
        if not self._spoken:
            empty = {"type": "text", "text": ""}
            yield _event("content_block_start", index=0, content_block=empty)
            self._spoken = True
        delta = {"type": "text_delta", "text": part.words}
        yield _event("content_block_delta", index=0, delta=delta)

    def end(self, rest: Piece, answer: Answer) -> Iterator[str]:
        whole = reply(answer)
        if rest.words or (not self._spoken and not answer.calls):
            yield from self.more(rest)
        for index, block in enumerate(whole["content"]):
            if block["type"] == "tool_use":
                empty = {**block, "input": {}}
                yield _event("content_block_start", index=index, content_block=empty)
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        ending = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        about = {"usage": whole["usage"], "palaestra": answer.about}
        yield _event("message_delta", delta=ending, **about)
        yield _event("message_stop")


def _said(turn: Turn) -> Iterator[Said]:
    """The messages of a turn: answers of tools first, as they were called."""
    if isinstance(turn.content, str):
        yield Said(turn.role, turn.content)
        return
    words: list[str] = []
    calls: list[Called] = []
    images: list[str] = []
    for block in turn.content:
        match block.type:
            case "text" if block.text is not None:
                words.append(block.text)
            case "tool_use" if block.name and block.id and turn.role == "assistant":
                calls.append(Called(block.id, block.name, block.input or {}))
            case "tool_result" if block.tool_use_id and turn.role == "user":
                seen = chat.images_of(block.content)
                words_seen = chat.words_of(block.content)
                yield Said("tool", words_seen, images=seen, call_id=block.tool_use_id)
            case "image" if turn.role == "user" and block.source is not None:
                images.append(pictures.picture(block.source.address))
            case thought if thought in THOUGHTS:
                continue
            case _:
                raise Refusal(400, f"A block of the type '{block.type}' is not understood here.")
    if words or calls or images or not turn.content:
        yield Said(turn.role, "\n".join(words), tuple(calls), tuple(images))


def _form(request: MessagesRequest) -> Form | None:
    config = request.output_config
    if config is not None and config.format is not None:
        return form_of(config.format, "output_config.format")
    return form_of(request.output_format, "output_format")


def _thought(request: MessagesRequest) -> bool:
    blocks = (turn.content for turn in request.messages if not isinstance(turn.content, str))
    return any(block.type in THOUGHTS for content in blocks for block in content)


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.content or not answer.calls:
        blocks.append({"type": "text", "text": answer.content})
    for call in answer.calls:
        arguments = {} if isinstance(call.arguments, str) else dict(call.arguments)
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _reason(answer: Answer) -> str:
    if answer.calls:
        return "tool_use"
    if answer.stopped is not None:
        return "stop_sequence"
    return "max_tokens" if answer.generation.finish is Finish.LENGTH else "end_turn"


def _head(number: int, model: str) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}


def _event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"
