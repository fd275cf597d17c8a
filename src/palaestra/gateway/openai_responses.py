"""OpenAI's responses: requests and replies; `previous_response_id` continues a conversation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

from pydantic import Field

from palaestra.core.message import Message, Reasoning, ToolCall, system
from palaestra.core.model import Finish
from palaestra.core.tool import arguments_of
from palaestra.gateway import openai_chat
from palaestra.gateway.content import Part, result, texts, texts_and_images
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.offered_tools import AnyTool, full_name, left_out, offered, unknown
from palaestra.gateway.program_requests import Answer, Question, Received, role_of
from palaestra.gateway.reply_history import item_ids
from palaestra.gateway.request_fields import Shape, ignored
from palaestra.gateway.streaming import Chunk
from palaestra.gateway.structured_output import Format, form_of

TEXTS = ("input_text", "output_text", "text")
THOUGHTS = ("reasoning_text", "summary_text")
CALLS = "arguments", "function_call_arguments"
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "input.content.annotations": (),  # on replies sent back
    "input.content.detail": ("auto",),
    "input.content.logprobs": (),
    "input.status": (),
    "store": (True,),
    "stream_options.include_obfuscation": (False, True),
    "text.verbosity": ("medium",),
}
LOST = {
    "conversation": "continue by previous_response_id or by items",
    "prompt": "send the prompt itself",
}
LOGPROBS = "message.output_text.logprobs"
SIGNATURES = "reasoning.encrypted_content"  # always sent if there is one
FIELDS = {
    "logprobs": "include",
    "max_tokens": "max_output_tokens",
    "reasoning": "input.reasoning",
    "reasoning_effort": "reasoning",
}


class Item(Shape):
    """One item of a conversation: a message, reasoning, a call, its result, or an item's id."""

    type: str = "message"
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None


class NamedTool(Shape):
    """A choice of one tool."""

    type: Literal["function", "custom"]
    name: str


class ReasoningOptions(Shape):
    """The options of reasoning."""

    effort: str | None = None


class TextOptions(Shape):
    """The options of a reply's text."""

    format: Format | None = None


class ResponseRequest(Shape):
    """The supported fields of the body of `/v1/responses`."""

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
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    background: Literal[False] | None = None


@dataclass(slots=True)
class IssuedResponses:
    """The responses of this session, to which later requests may refer."""

    conversations: dict[str, tuple[Received, ...]] = field(default_factory=dict)  # by response id
    items: dict[str, Item] = field(default_factory=dict)  # by item id

    def add(self, asked: Question, answer: Answer, request: ResponseRequest) -> None:
        """Record a response; its conversation continues without its instructions."""
        messages = asked.messages[1:] if request.instructions else asked.messages
        last = Received(answer.message, item_ids(answer.number))
        self.conversations[name_of(answer.number)] = (*messages, last)
        for item in _output(answer, request):
            self.items[item["id"]] = Item.model_validate(item)


def question(request: ResponseRequest, earlier: IssuedResponses) -> Question:
    """Return a request as a question.

    Raises:
        HTTPError: the request is invalid, or names a response or an item not in `earlier`.
    """
    before: tuple[Received, ...] = ()
    if request.previous_response_id is not None:
        if request.previous_response_id not in earlier.conversations:
            raise HTTPError(404, f"There is no response '{request.previous_response_id}' here.")
        before = earlier.conversations[request.previous_response_id]
    given = request.input
    items = [Item(role="user", content=given)] if isinstance(given, str) else given
    messages = [*before, *_received([_resolved(item, earlier) for item in items])]
    if request.instructions:
        messages.insert(0, Received(system(request.instructions)))
    if not messages:
        raise HTTPError(400, "input: there is no message to reply to.", "invalid")
    chosen = request.tool_choice or "auto"
    choice = chosen if isinstance(chosen, str) else chosen.name
    tools = request.tools or []
    return Question(
        role=role_of(request.model),
        messages=tuple(messages),
        tools=tuple(one.tool for one in offered(tools).values()),
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
        max_tokens=request.max_output_tokens,
        temperature=request.temperature,
        form=form_of(request.text.format if request.text else None, "text.format"),
        logprobs=LOGPROBS in _included(request),
        fields=FIELDS,
        ignored=(
            *ignored(request, NEUTRAL, LOST),
            *left_out(tools),
            *(["include"] if set(_included(request)) - {LOGPROBS, SIGNATURES} else []),
        ),
    )


def name_of(number: int) -> str:
    """Return the id of the response to the question of that number."""
    return f"resp_{number}"


def reply(answer: Answer, request: ResponseRequest) -> dict[str, Any]:
    """Return the response body."""
    cut = answer.generation.finish is Finish.LENGTH and not answer.tool_calls
    spent = openai_chat.usage(answer)
    return {
        **_head(request, answer.number, answer.model),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _output(answer, request),
        "usage": {
            "input_tokens": spent["prompt_tokens"],
            "input_tokens_details": spent["prompt_tokens_details"],
            "output_tokens": spent["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": spent["total_tokens"],
        },
        "palaestra": answer.about,
    }


class ResponseEventWriter:
    """The `EventWriter` of the responses protocol."""

    def __init__(self, request: ResponseRequest, asked: Question, model: str) -> None:
        """Write a reply of that model, which the first events name."""
        self._request, self._asked, self._model = request, asked, model
        self._events = count()
        self._reasoning: str | None = None  # the part already sent; None: none
        self._completed = 0  # completed items
        self._message_started = False  # whether the message has started

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

    def more(self, chunk: Chunk) -> Iterator[str]:
        if chunk.reasoning:
            yield from self._reason(chunk.reasoning)
        if not chunk.text:
            return
        yield from self._start_message()
        known = (
            openai_chat.token_logprobs(chunk.tokens) if LOGPROBS in _included(self._request) else []
        )
        yield self._event("output_text.delta", **self._message, delta=chunk.text, logprobs=known)

    def end(self, rest: Chunk, answer: Answer) -> Iterator[str]:
        whole = reply(answer, self._request)
        signature = answer.generation.signature
        if rest.reasoning or (signature and self._reasoning is None):
            yield from self._reason(rest.reasoning)
        if self._completed == 0 and self._reasoning is not None:
            yield from self._end_reasoning(signature)
        if rest.text:
            yield from self.more(replace(rest, reasoning=""))
        for index, item in enumerate(whole["output"]):
            if item["type"] == "reasoning":
                continue
            if item["type"] == "message":
                yield from self._start_message()
                part = item["content"][0]
                spoken = {"text": part["text"], "logprobs": part["logprobs"]}
                yield self._event("output_text.done", **self._message, **spoken)
                yield self._event("content_part.done", **self._message, part=part)
            else:
                yield from self._call(index, item)
            yield self._event("output_item.done", output_index=index, item=item)
        last = "incomplete" if whole["status"] == "incomplete" else "completed"
        yield self._event(last, response=whole)

    @property
    def _thought(self) -> dict[str, Any]:
        """Return the position of the reasoning."""
        return {"output_index": 0, "item_id": item_ids(self._asked.number)[1], "content_index": 0}

    @property
    def _message(self) -> dict[str, Any]:
        """Return the position of the message."""
        index = {"output_index": self._completed, "content_index": 0}
        return {**index, "item_id": item_ids(self._asked.number)[0]}

    def _reason(self, text: str) -> Iterator[str]:
        """Yield the events of a reasoning delta."""
        if self._reasoning is None:
            self._reasoning = ""
            item = {**_thoughts(self._asked.number, "", ""), "status": "in_progress", "content": []}
            yield self._event("output_item.added", output_index=0, item=item)
            yield self._event("content_part.added", **self._thought, part=_thought(""))
        self._reasoning += text
        yield self._event("reasoning_text.delta", **self._thought, delta=text)

    def _end_reasoning(self, signature: str = "") -> Iterator[str]:
        """Yield the events that end the reasoning."""
        text = self._reasoning or ""
        yield self._event("reasoning_text.done", **self._thought, text=text)
        yield self._event("content_part.done", **self._thought, part=_thought(text))
        item = _thoughts(self._asked.number, text, signature)
        yield self._event("output_item.done", output_index=0, item=item)
        self._completed = 1

    def _start_message(self) -> Iterator[str]:
        """Yield the events that start the message, once."""
        if self._message_started:
            return
        if self._completed == 0 and self._reasoning is not None:
            yield from self._end_reasoning()
        item = {**_message(self._asked.number, "in_progress"), "content": []}
        yield self._event("output_item.added", output_index=self._completed, item=item)
        yield self._event("content_part.added", **self._message, part=_text("", []))
        self._message_started = True

    def _call(self, index: int, item: dict[str, Any]) -> Iterator[str]:
        custom = item["type"] == "custom_tool_call"
        field, kind = ("input", "custom_tool_call_input") if custom else CALLS
        started = {**item, field: "", "status": "in_progress"}
        yield self._event("output_item.added", output_index=index, item=started)
        where = {"output_index": index, "item_id": item["id"]}
        yield self._event(f"{kind}.delta", **where, delta=item[field])
        done = {field: item[field]} | ({} if custom else {"name": item["name"]})
        yield self._event(f"{kind}.done", **where, **done)

    def _event(self, kind: str, **data: Any) -> str:
        event = {"type": f"response.{kind}", "sequence_number": next(self._events), **data}
        return f"event: response.{kind}\ndata: {json.dumps(event)}\n\n"


def _received(items: list[Item]) -> list[Received]:
    """Return the messages of items; adjacent items of one reply are merged."""
    found: list[Received] = []
    own = False  # whether the last item was part of a reply
    for item in items:
        received = _message_of(item)
        if item.type == "reasoning" and not received.message.parts:
            continue
        last = found[-1].message if found else None
        replied = received.message.role == "assistant"
        calls = bool(received.message.tool_calls)
        if own and replied and last is not None and (calls or _only_reasons(last)):
            whole = Message("assistant", (*last.parts, *received.message.parts))
            received = Received(whole, (*found.pop().ids, *received.ids))
        found.append(received)
        own = replied
    return found


def _message_of(item: Item) -> Received:
    """Return an item as a message, or as a part of one."""
    ids = (item.id,) if item.id else ()
    match item.type:
        case "message" if item.role == "assistant":
            return Received(Message("assistant", texts(item.content, TEXTS)), ids)
        case "message" if item.role == "user":
            return Received(Message("user", texts_and_images(item.content, TEXTS)))
        case "message" if item.role is not None:
            return Received(Message("system", texts(item.content, TEXTS)))
        case "reasoning":
            return Received(Message("assistant", tuple(_reasoning(item))), ids)
        case "function_call" | "custom_tool_call" if item.name and item.call_id:
            name = full_name(item.namespace, item.name)
            call = ToolCall(name, _arguments(item), item.call_id)
            return Received(Message("assistant", (call,)))
        case "function_call_output" | "custom_tool_call_output" if item.call_id:
            return Received(result(item.output, item.call_id, TEXTS))
        case _:
            raise HTTPError(
                400, f"input: an item of the type '{item.type}' is not supported.", "invalid"
            )


def _reasoning(item: Item) -> Iterator[Reasoning]:
    """Yield the reasoning of an item: its text, or its summary if there is no text."""
    shown = texts(item.content, THOUGHTS) or texts(item.summary, THOUGHTS)
    text, signature = "\n".join(part.text for part in shown), item.encrypted_content or ""
    if text or signature:
        yield Reasoning(text, signature)


def _only_reasons(message: Message) -> bool:
    """Return whether a reply consists of reasoning so far."""
    return bool(message.parts) and all(isinstance(p, Reasoning) for p in message.parts)


def _resolved(item: Item, earlier: IssuedResponses) -> Item:
    """Return an item, or the one that a reference names."""
    if item.type != "item_reference":
        return item
    if item.id not in earlier.items:
        raise HTTPError(400, f"input: no item '{item.id}' was given in this session.", "invalid")
    return earlier.items[item.id]


def _arguments(item: Item) -> Mapping[str, Any]:
    if item.type == "custom_tool_call":
        return {"input": item.input or ""}
    return arguments_of(item.arguments or "")


def _included(request: ResponseRequest) -> list[str]:
    return request.include or []


def _message(number: int, status: str) -> dict[str, Any]:
    about = {"type": "message", "id": item_ids(number)[0], "role": "assistant"}
    return {**about, "status": status}


def _text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _thoughts(number: int, text: str, signature: str) -> dict[str, Any]:
    """Return the reasoning item of a reply."""
    about = {"type": "reasoning", "id": item_ids(number)[1], "status": "completed"}
    shown = [_thought(text)] if text else []
    return {**about, "summary": [], "content": shown, "encrypted_content": signature or None}


def _thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text}


def _output(answer: Answer, request: ResponseRequest) -> list[dict[str, Any]]:
    known = openai_chat.token_logprobs(answer.tokens) if LOGPROBS in _included(request) else []
    items: list[dict[str, Any]] = []
    made = answer.generation
    if made.reasoning or made.signature:
        items.append(_thoughts(answer.number, made.reasoning, made.signature))
    if answer.text or not answer.tool_calls:
        message = _message(answer.number, "completed")
        items.append({**message, "content": [_text(answer.text, known)]})
    tools = offered(request.tools or [])
    for call in answer.tool_calls:
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
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "temperature": request.temperature,
        "tool_choice": request.model_dump()["tool_choice"] or "auto",
        "tools": [{"strict": False, **tool.model_dump()} for tool in request.tools or ()],
        "metadata": {},
    }
