"""OpenAI's responses, in and out; conversations can be gone on with by `previous_response_id`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from pydantic import Field

from palaestra.core.message import Speaker
from palaestra.core.model import Finish
from palaestra.rollout.gateway import chat
from palaestra.rollout.gateway.conversation import Answer, Called, Question, Said
from palaestra.rollout.gateway.fields import Shape, ignored
from palaestra.rollout.gateway.forms import Format, form_of
from palaestra.rollout.gateway.offered import AnyTool, full_name, left_out, offered, unknown
from palaestra.rollout.gateway.refusal import Refusal
from palaestra.rollout.gateway.telling import Piece

WORDS = ("input_text", "output_text", "text")
CALLS = "arguments", "function_call_arguments"
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "input.content.annotations": (),  # of replies, as they come back
    "input.content.detail": ("auto",),
    "input.content.logprobs": (),
    "input.status": (),
    "store": (True,),
    "stream_options.include_obfuscation": (False, True),
    "text.verbosity": ("medium",),
}
LOST = {
    "conversation": "go on by previous_response_id or by items",
    "prompt": "send the prompt itself",
}
LOGPROBS = "message.output_text.logprobs"


class Item(Shape):
    """One item of a conversation: a message, a call, what it was answered, or its id."""

    type: str = "message"
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[chat.Part] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[chat.Part] | None = None


class NamedTool(Shape):
    """A choice of one tool."""

    type: Literal["function", "custom"]
    name: str


class TextPart(Shape):
    """The form of a reply."""

    format: Format | None = None


class ResponseRequest(Shape):
    """The body of `/v1/responses`, as far as it is honoured."""

    model: str
    input: str | list[Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[AnyTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    stream: bool | None = None
    include: list[str] | None = None
    text: TextPart | None = None
    background: Literal[False] | None = None


@dataclass(slots=True)
class Issued:
    """What this session's responses were."""

    conversations: dict[str, tuple[Said, ...]] = field(default_factory=dict)  # by their ids
    items: dict[str, Item] = field(default_factory=dict)  # by theirs

    def add(self, asked: Question, answer: Answer, request: ResponseRequest) -> None:
        """Remember a response; all but its instructions is gone on with."""
        messages = asked.messages[1:] if request.instructions else asked.messages
        whole = (*messages, Said("assistant", answer.content, answer.calls))
        self.conversations[name_of(answer.number)] = whole
        for item in _output(answer, request):
            self.items[item["id"]] = Item.model_validate(item)


def question(request: ResponseRequest, earlier: Issued) -> Question:
    """What a request asks.

    Raises:
        Refusal: like `chat.question`; or it names a response or an item that is none of `earlier`.
    """
    before: tuple[Said, ...] = ()
    if request.previous_response_id is not None:
        if request.previous_response_id not in earlier.conversations:
            raise Refusal(404, f"There is no response '{request.previous_response_id}' here.")
        before = earlier.conversations[request.previous_response_id]
    given = request.input
    items = [Item(role="user", content=given)] if isinstance(given, str) else given
    messages = [*before, *_said([_resolved(item, earlier) for item in items])]
    if request.instructions:
        messages.insert(0, Said("system", request.instructions))
    if not messages:
        raise Refusal(400, "input: there is no message to reply to.", "invalid")
    chosen = request.tool_choice or "auto"
    choice = chosen if isinstance(chosen, str) else chosen.name
    tools = request.tools or []
    return Question(
        messages=tuple(messages),
        tools=tuple(one.tool for one in offered(tools).values()),
        choice=choice,
        max_tokens=request.max_output_tokens,
        limit="max_output_tokens",
        temperature=request.temperature,
        form=form_of(request.text.format if request.text else None, "text.format"),
        logprobs="include" if LOGPROBS in _included(request) else None,
        ignored=(
            *ignored(request, NEUTRAL, LOST),
            *left_out(tools),
            *chat.forced(choice),
            *(["include"] if set(_included(request)) - {LOGPROBS} else []),
            *(["input.reasoning"] if any(item.type == "reasoning" for item in items) else []),
        ),
    )


def name_of(number: int) -> str:
    """The id of the response to the question of that number."""
    return f"resp_{number}"


def reply(answer: Answer, request: ResponseRequest) -> dict[str, Any]:
    """The whole answer."""
    cut = answer.generation.finish is Finish.LENGTH and not answer.calls
    spent = chat.usage(answer)
    return {
        **_head(request, answer.number, answer.model),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _output(answer, request),
        "usage": {
            "input_tokens": spent["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": spent["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": spent["total_tokens"],
        },
        "palaestra": answer.about,
    }


class Events:
    """The same as server-sent events, while it is sampled; a `Teller`."""

    def __init__(self, request: ResponseRequest, asked: Question, model: str) -> None:
        """Of a reply of that model, which its first events name."""
        self._request, self._asked, self._model = request, asked, model
        self._events = count()
        self._spoken = False  # whether the message was begun
        self._at = {"output_index": 0, "item_id": f"msg_{asked.number}", "content_index": 0}

    def begin(self) -> Iterator[str]:
        begun = {
            **_head(self._request, self._asked.number, self._model),
            "status": "in_progress",
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        yield self._event("created", response=begun)
        yield self._event("in_progress", response=begun)

    def more(self, part: Piece) -> Iterator[str]:
        if not self._spoken:
            item = {**_message(self._asked.number, "in_progress"), "content": []}
            yield self._event("output_item.added", output_index=0, item=item)
            yield self._event("content_part.added", **self._at, part=_text("", []))
            self._spoken = True
        known = chat.token_logprobs(part.tokens) if LOGPROBS in _included(self._request) else []
        yield self._event("output_text.delta", **self._at, delta=part.words, logprobs=known)

    def end(self, rest: Piece, answer: Answer) -> Iterator[str]:
        if rest.words or (not self._spoken and not answer.calls):
            yield from self.more(rest)
        whole = reply(answer, self._request)
        for place, item in enumerate(whole["output"]):
            if item["type"] == "message":
                part = item["content"][0]
                words = {"text": part["text"], "logprobs": part["logprobs"]}
                yield self._event("output_text.done", **self._at, **words)
                yield self._event("content_part.done", **self._at, part=part)
            else:
                yield from self._call(place, item)
            yield self._event("output_item.done", output_index=place, item=item)
        last = "incomplete" if whole["status"] == "incomplete" else "completed"
        yield self._event(last, response=whole)

    def _call(self, place: int, item: dict[str, Any]) -> Iterator[str]:
        custom = item["type"] == "custom_tool_call"
        told, kind = ("input", "custom_tool_call_input") if custom else CALLS
        started = {**item, told: "", "status": "in_progress"}
        yield self._event("output_item.added", output_index=place, item=started)
        where = {"output_index": place, "item_id": item["id"]}
        yield self._event(f"{kind}.delta", **where, delta=item[told])
        done = {told: item[told]} | ({} if custom else {"name": item["name"]})
        yield self._event(f"{kind}.done", **where, **done)

    def _event(self, kind: str, **data: Any) -> str:
        told = {"type": f"response.{kind}", "sequence_number": next(self._events), **data}
        return f"event: response.{kind}\ndata: {json.dumps(told)}\n\n"


def _said(items: list[Item]) -> list[Said]:
    """Messages; neighbours of which one reply consists are put together."""
    found: list[Said] = []
    own = False  # whether the last item was part of a reply
    for item in items:
        match item.type:
            case "message" if item.role == "assistant":
                part = Said("assistant", chat.text_of(item.content, WORDS))
            case "message" if item.role is not None:
                role: Speaker = "user" if item.role == "user" else "system"
                part = Said(role, *_content(item.content, role))
            case "function_call" | "custom_tool_call" if item.name and item.call_id:
                name = full_name(item.namespace, item.name)
                part = Said("assistant", "", (Called(item.call_id, name, _arguments(item)),))
            case "function_call_output" | "custom_tool_call_output" if item.call_id:
                part = Said("tool", *_content(item.output, "tool"), item.call_id)
            case "reasoning":
                continue  # none is ever made here
            case _:
                raise Refusal(400, f"input: an item '{item.type}' is not understood.", "invalid")
        joins = own and part.role == "assistant" and bool(part.calls)
        if joins:
            last = found.pop()
            part = Said("assistant", last.content, (*last.calls, *part.calls))
        found.append(part)
        own = part.role == "assistant"
    return found


def _resolved(item: Item, earlier: Issued) -> Item:
    """The item itself, where only its id is given."""
    if item.type != "item_reference":
        return item
    if item.id not in earlier.items:
        raise Refusal(400, f"input: no item '{item.id}' was given in this session.", "invalid")
    return earlier.items[item.id]


def _content(
    content: str | list[chat.Part] | None, role: Speaker
) -> tuple[str, tuple[Called, ...], tuple[str, ...]]:
    if role == "system":
        return chat.text_of(content, WORDS), (), ()
    return chat.words_of(content, WORDS), (), chat.images_of(content)


def _arguments(item: Item) -> dict[str, Any] | str:
    if item.type == "custom_tool_call":
        return {"input": item.input or ""}
    return chat.arguments_of(item.arguments or "")


def _included(request: ResponseRequest) -> list[str]:
    return request.include or []


def _message(number: int, status: str) -> dict[str, Any]:
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": status}


def _text(words: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": words, "annotations": [], "logprobs": logprobs}


def _output(answer: Answer, request: ResponseRequest) -> list[dict[str, Any]]:
    known = chat.token_logprobs(answer.known) if LOGPROBS in _included(request) else []
    items: list[dict[str, Any]] = []
    if answer.content or not answer.calls:
        message = _message(answer.number, "completed")
        items.append({**message, "content": [_text(answer.content, known)]})
    tools = offered(request.tools or [])
    for call in answer.calls:
        item = tools.get(call.name, unknown(call)).item(call)
        items.append({**item, "status": "completed"})
    return items


def _head(request: ResponseRequest, number: int, model: str) -> dict[str, Any]:
    return {
        "id": name_of(number),
        "object": "response",
        "created_at": int(time.time()),
        "error": None,
        "instructions": request.instructions,
        "model": model,
        "parallel_tool_calls": True,
        "previous_response_id": request.previous_response_id,
        "temperature": request.temperature,
        "tool_choice": request.model_dump()["tool_choice"] or "auto",
        "tools": [{"strict": False, **tool.model_dump()} for tool in request.tools or ()],
        "metadata": {},
    }
