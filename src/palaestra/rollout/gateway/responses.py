"""OpenAI's responses, in and out; conversations can be gone on with by `previous_response_id`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from palaestra.core.message import Speaker
from palaestra.core.model import Finish
from palaestra.core.tool import Tool
from palaestra.rollout.gateway import chat
from palaestra.rollout.gateway.conversation import Answer, Called, Question, Said
from palaestra.rollout.gateway.refusal import Refusal

WORDS = ("input_text", "output_text", "text")
LOGPROBS = "message.output_text.logprobs"


class Item(BaseModel):
    """One item of a conversation: a message, a call, or what it was answered."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[chat.Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[chat.Part] | None = None


class FlatTool(BaseModel):
    """A tool."""

    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class NamedTool(BaseModel):
    """A choice of one tool."""

    type: Literal["function"]
    name: str


class TextPart(BaseModel):
    """The form of a reply."""

    format: chat.Format | None = None


class ResponseRequest(BaseModel):
    """The body of `/v1/responses`, as far as it is honoured."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | list[Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[FlatTool] = []
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0)
    stream: bool | None = None
    include: list[str] | None = None
    text: TextPart | None = None
    background: Literal[False] | None = None


def question(request: ResponseRequest, earlier: Mapping[str, tuple[Said, ...]]) -> Question:
    """What a request asks; `earlier` has the conversations of this session's responses.

    Raises:
        Refusal: like `chat.question`; or the previous response is none of this session's.
    """
    form = request.text.format if request.text else None
    if form is not None and form.type != "text":
        raise Refusal(400, "text.format: replies are free text; ask for a tool's call instead.")
    before: tuple[Said, ...] = ()
    if request.previous_response_id is not None:
        if request.previous_response_id not in earlier:
            raise Refusal(404, f"There is no response '{request.previous_response_id}' here.")
        before = earlier[request.previous_response_id]
    given = request.input
    items = [Item(role="user", content=given)] if isinstance(given, str) else given
    messages = [*before, *_said(items)]
    if request.instructions:
        messages.insert(0, Said("system", request.instructions))
    if not messages:
        raise Refusal(400, "input: there is no message to reply to.", "invalid")
    choice = request.tool_choice or "auto"
    return Question(
        messages=tuple(messages),
        tools=tuple(
            Tool(t.name, t.description or "", t.parameters or chat.NO_PARAMETERS)
            for t in request.tools
        ),
        choice=choice if isinstance(choice, str) else choice.name,
        max_tokens=request.max_output_tokens,
        temperature=request.temperature,
        ignored=chat.ignored(request),
    )


def conversation(asked: Question, answer: Answer, request: ResponseRequest) -> tuple[Said, ...]:
    """What a response that goes on from this one begins with: all but the instructions."""
    messages = asked.messages[1:] if request.instructions else asked.messages
    return (*messages, Said("assistant", answer.content, answer.calls))


def name_of(answer: Answer) -> str:
    """The id of a response."""
    return f"resp_{answer.index}"


def reply(answer: Answer, request: ResponseRequest) -> dict[str, Any]:
    """The whole answer."""
    return _response(answer, request, _output(answer, request), "completed")


def events(answer: Answer, request: ResponseRequest) -> Iterator[str]:
    """The same as server-sent events."""
    number = count()

    def event(kind: str, **data: Any) -> str:
        told = {"type": f"response.{kind}", "sequence_number": next(number), **data}
        return f"event: response.{kind}\ndata: {json.dumps(told)}\n\n"

    begun = _response(answer, request, [], "in_progress")
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    for place, item in enumerate(_output(answer, request)):
        where = {"output_index": place, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        started = {**item, **empty, "status": "in_progress"}
        yield event("output_item.added", output_index=place, item=started)
        if item["type"] == "message":
            part = item["content"][0]
            at, words = {**where, "content_index": 0}, part["text"]
            known = part["logprobs"]
            yield event("content_part.added", **at, part={**part, "text": "", "logprobs": []})
            yield event("output_text.delta", **at, delta=words, logprobs=known)
            yield event("output_text.done", **at, text=words, logprobs=known)
            yield event("content_part.done", **at, part=part)
        else:
            arguments, name = item["arguments"], item["name"]
            yield event("function_call_arguments.delta", **where, delta=arguments)
            yield event("function_call_arguments.done", **where, name=name, arguments=arguments)
        yield event("output_item.done", output_index=place, item=item)
    whole = reply(answer, request)
    yield event("incomplete" if whole["status"] == "incomplete" else "completed", response=whole)


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
                part = Said(role, chat.text_of(item.content, WORDS))
            case "function_call" if item.name and item.call_id:
                called = Called(item.call_id, item.name, chat.arguments_of(item.arguments or ""))
                part = Said("assistant", "", (called,))
            case "function_call_output" if item.call_id:
                part = Said("tool", chat.text_of(item.output, WORDS))
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


def _output(answer: Answer, request: ResponseRequest) -> list[dict[str, Any]]:
    known = chat.token_logprobs(answer) if LOGPROBS in (request.include or ()) else []
    items: list[dict[str, Any]] = []
    if answer.content or not answer.calls:
        part = {"type": "output_text", "text": answer.content, "annotations": []}
        message = {"type": "message", "id": f"msg_{answer.index}", "role": "assistant"}
        items.append({**message, "status": "completed", "content": [{**part, "logprobs": known}]})
    for call in answer.calls:
        about = {"call_id": call.id, "name": call.name, "arguments": call.as_json}
        items.append(
            {"type": "function_call", "id": f"fc_{call.id}", "status": "completed"} | about
        )
    return items


def _response(
    answer: Answer, request: ResponseRequest, output: list[dict[str, Any]], status: str
) -> dict[str, Any]:
    cut = answer.generation.finish is Finish.LENGTH and status == "completed" and not answer.calls
    spent = chat.usage(answer)
    return {
        "id": name_of(answer),
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": request.instructions,
        "model": answer.generation.policy,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": request.previous_response_id,
        "temperature": request.temperature,
        "tool_choice": request.model_dump()["tool_choice"] or "auto",
        "tools": [{"strict": False, **tool.model_dump()} for tool in request.tools],
        "metadata": {},
        "usage": {
            "input_tokens": spent["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": spent["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": spent["total_tokens"],
        },
        "palaestra": answer.about,
    }
