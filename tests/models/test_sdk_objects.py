"""A remote model's replies equal the SDKs' own objects from the same server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from palaestra.core.message import Message, ToolCall, tool_result, user
from palaestra.core.model import Finish, Generation, Sampling
from palaestra.core.tool import Tool
from palaestra.models.remote.anthropic_protocol import ANTHROPIC
from palaestra.models.remote.remote_model import RemoteModel
from tests.models import recorded
from tests.models.remote.provider_server import Answer, Server, ask, responds, serving, streams

WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
)
CLOCK = Tool("clock", "The time.", {"type": "object", "properties": {}})
TOOLS = (WEATHER, CLOCK)
INTERLEAVED: list[dict[str, Any]] = [
    recorded.CLAUDE_BLOCKS[0],
    {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIw"},
    {"type": "text", "text": "First Paris."},
    recorded.CLAUDE_BLOCKS[0] | {"thinking": "Then Oslo.", "signature": "Er8CCkYIBxgCKkC0"},
    *recorded.CLAUDE_BLOCKS[2:],
]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


# ── chat completions ─────────────────────────────────────────────────────────

COMPLETIONS: dict[str, tuple[Answer, bool]] = {
    "GPT": (responds(200, recorded.GPT), False),
    "GPT, streamed": (streams(recorded.GPT_STREAM), True),
    "vLLM": (responds(200, recorded.VLLM), False),
    "vLLM, streamed": (streams(recorded.VLLM_STREAM), True),
}


def completion(server: Server, stream: bool) -> Any:
    """The SDK's own object."""

    async def run() -> Any:
        client = openai.AsyncOpenAI(api_key="none", base_url=server.url)
        arguments: Any = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        if not stream:
            return await client.chat.completions.create(**arguments)
        async with client.chat.completions.stream(**arguments) as events:
            return await events.get_final_completion()

    return asyncio.run(run())


@pytest.mark.parametrize(("answer", "stream"), COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_a_completion_equals_the_sdks_own(server: Server, answer: Answer, stream: bool) -> None:
    server.answers = [answer]
    reply = ask(RemoteModel("m", server.url, stream=stream), tools=TOOLS)
    output = completion(server, stream)
    message = output.choices[0].message
    assert reply.text == (message.content or "")
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in message.tool_calls
    ]
    assert reply.reasoning == getattr(message, "reasoning_content", "")
    assert (reply.prompt_tokens, reply.sampled_tokens) == (
        output.usage.prompt_tokens,
        output.usage.completion_tokens,
    )
    cached = output.usage.prompt_tokens_details
    held = cached.cached_tokens if cached else 0
    assert reply.computed_tokens == reply.prompt_tokens - held
    assert reply.finish is Finish.STOP and len(reply.tool_calls) == 2


def test_a_stream_says_what_the_whole_answer_says(server: Server) -> None:
    for whole, events in (
        (recorded.GPT, recorded.GPT_STREAM),
        (recorded.VLLM, recorded.VLLM_STREAM),
    ):
        server.answers = [responds(200, whole)]
        one = ask(RemoteModel("m", server.url), tools=TOOLS)
        server.answers = [streams(events)]
        other = ask(RemoteModel("m", server.url, stream=True), tools=TOOLS)
        assert what(one) == what(other)
    assert server.requests[-1]["stream_options"] == {"include_usage": True}


def what(reply: Generation) -> tuple[Any, ...]:
    """Return all fields but the time."""
    return reply.message, reply.finish, reply.prompt_tokens, reply.sampled_tokens


def test_a_conversation_with_calls_goes_back_as_the_sdk_would_send_it(server: Server) -> None:
    server.answers = [responds(200, recorded.VLLM)]
    remote = RemoteModel("m", server.url)
    reply = ask(remote, user("Weather and time?"), tools=TOOLS)
    talk = [
        user("Weather and time?"),
        reply.message,
        tool_result("12:00", id=reply.tool_calls[1].id),
        tool_result("no such city", id=reply.tool_calls[0].id, error=True),
    ]
    ask(remote, *talk, tools=TOOLS)
    message = completion(server, stream=False).choices[0].message.to_dict()
    _, back, first, second = server.requests[1]["messages"]
    assert back["reasoning_content"] == message["reasoning_content"]
    assert (back["role"], back["content"]) == (message["role"], message["content"])
    assert back["tool_calls"] == message["tool_calls"]
    assert (first["role"], first["tool_call_id"]) == ("tool", recorded.VLLM_CALLS[0]["id"])
    assert (second["tool_call_id"], second["content"]) == (recorded.VLLM_CALLS[1]["id"], "12:00")


# ── messages ─────────────────────────────────────────────────────────────────

BLOCKS = {
    "usual": recorded.CLAUDE_BLOCKS,
    "words": [{"type": "text", "text": "No need."}],
    "interleaved": INTERLEAVED,
    "hidden": [recorded.CLAUDE_BLOCKS[0] | {"thinking": ""}, recorded.CLAUDE_BLOCKS[2]],
}


def claude_message(server: Server, stream: bool) -> Any:
    """The SDK's own object."""

    async def run() -> Any:
        client = anthropic.AsyncAnthropic(
            api_key="none", base_url=server.url.removesuffix("/v1"), timeout=60
        )
        arguments: Any = {
            "model": "m",
            "max_tokens": 64,
            "messages": [{"role": "user", "content": "?"}],
        }
        if not stream:
            return await client.messages.create(**arguments)
        async with client.messages.stream(**arguments) as events:
            return await events.get_final_message()

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS.keys())
def test_a_message_equals_the_sdks_own_and_goes_back_as_it_came(
    server: Server, blocks: list[dict[str, Any]], stream: bool
) -> None:
    server.answers = [
        streams(recorded.claude_stream(blocks), named=True)
        if stream
        else responds(200, recorded.claude(blocks))
    ]
    remote = RemoteModel("m", server.url, protocol=ANTHROPIC, stream=stream)
    reply = ask(remote, user("Weather?"), tools=TOOLS)
    output = claude_message(server, stream)
    kinds = {kind: [b for b in output.content if b.type == kind] for kind in ("text", "thinking")}
    assert reply.text == "".join(block.text for block in kinds["text"])
    assert reply.reasoning == "\n\n".join(block.thinking for block in kinds["thinking"])
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        (block.id, block.name, block.input) for block in output.content if block.type == "tool_use"
    ]
    usage = output.usage
    assert reply.prompt_tokens == (
        usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    )
    assert reply.computed_tokens == reply.prompt_tokens - usage.cache_read_input_tokens
    assert reply.sampled_tokens == usage.output_tokens
    results = [tool_result("mild", id=call.id) for call in reply.tool_calls]
    ask(remote, user("Weather?"), reply.message, *results, user("Go on."), tools=TOOLS)
    back = server.requests[-1]["messages"][1]["content"]
    own = [block.to_dict(exclude_unset=True) for block in output.to_param()["content"]]
    assert back == ("No need." if blocks == BLOCKS["words"] else own)


def test_reasoning_of_an_edited_reply_goes_back_without_what_was_edited(server: Server) -> None:
    server.answers = [responds(200, recorded.claude(INTERLEAVED))]
    remote = RemoteModel("m", server.url, protocol=ANTHROPIC, stream=False)
    reply = ask(remote, user("?"), tools=TOOLS)
    parts = tuple(part for part in reply.message.parts if not isinstance(part, ToolCall))
    ask(remote, user("?"), Message("assistant", parts), user("Go on."), tools=TOOLS)
    back = server.requests[-1]["messages"][1]["content"]
    kinds = [block["type"] for block in back]
    assert kinds == ["thinking", "redacted_thinking", "thinking", "text"]


def test_reasoning_goes_only_to_the_provider_that_gave_it(server: Server) -> None:
    server.answers = [responds(200, recorded.CLAUDE)]
    claude = RemoteModel("m", server.url, protocol=ANTHROPIC, stream=False)
    signed = ask(claude).message
    server.answers = [responds(200, recorded.VLLM)]
    vllm = RemoteModel("m", server.url)
    named = ask(vllm).message
    for part in (signed, named):
        assert part.reasoning
    ask(vllm, user("?"), signed, user("!"))
    assert not {"reasoning_content", "reasoning"} & set(server.requests[-1]["messages"][1])
    server.answers = [responds(200, recorded.CLAUDE)]
    ask(claude, user("?"), named, user("!"))
    kinds = [block["type"] for block in server.requests[-1]["messages"][1]["content"]]
    assert "thinking" not in kinds


# ── errors ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 529])
def test_an_error_shows_what_the_sdks_own_error_shows(server: Server, status: int) -> None:
    body = {"error": {"message": "No, because.", "type": "some_error", "code": None, "param": None}}
    server.answers = [responds(status, body, x_should_retry="false")]
    with pytest.raises(openai.APIStatusError) as theirs:
        completion(server, stream=False)
    with pytest.raises(Exception, match=rf"answered {status} .*No, because") as ours:
        ask(RemoteModel("m", server.url, attempts=1), sampling=Sampling())
    assert theirs.value.status_code == status
    assert str(status) in str(ours.value)
