"""Programs that use a provider through the gateway exchange the same data as without it."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import openai

from palaestra.models.remote.anthropic_protocol import ANTHROPIC
from palaestra.models.remote.remote_model import RemoteModel
from tests.gateway.test_message_parts import (
    ACT,
    PNG,
    chat_sdk,
    messages_sdk,
    of_functions,
    of_inputs,
)
from tests.gateway.visits import visit
from tests.models.remote.provider_server import responds, serving

CHOSEN = {
    "role": "assistant",
    "content": "Both.",
    "reasoning_content": "First up,\nthen down.",
    "tool_calls": [
        {
            "id": id,
            "type": "function",
            "function": {"name": "act", "arguments": f'{{"action": "{action}"}}'},
        }
        for id, action in (("call_Kx1", "up"), ("call_Kx2", "fall"))
    ],
}
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "model",
    "choices": [{"index": 0, "message": CHOSEN, "finish_reason": "tool_calls"}],
    "usage": {
        "prompt_tokens": 70,
        "completion_tokens": 20,
        "total_tokens": 90,
        "prompt_tokens_details": {"cached_tokens": 40},
    },
}
BLOCKS = [
    {"type": "thinking", "thinking": "First up,\nthen down.", "signature": "EqQBCg=="},
    {"type": "text", "text": "Both."},
    {"type": "tool_use", "id": "toolu_1", "name": "act", "input": {"action": "up"}},
    {"type": "tool_use", "id": "toolu_2", "name": "act", "input": {"action": "fall"}},
]
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "model",
    "content": BLOCKS,
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 30, "cache_read_input_tokens": 40, "output_tokens": 20},
}


def test_a_chat_through_the_gateway_is_the_one_with_the_provider() -> None:
    async def run() -> None:
        with serving() as server:
            server.answers = [responds(200, CHAT)]
            straight: Any = openai.AsyncOpenAI(base_url=server.url, api_key="k")
            async with visit(RemoteModel("model", server.url)) as visited:
                asked: Any = {"model": "model", "tools": of_functions(ACT), "tool_choice": "auto"}
                talk: list[Any] = [{"role": "user", "content": "go"}]
                for sdk in (straight, chat_sdk(visited)):
                    first = await sdk.chat.completions.create(messages=talk, **asked)
                    answers = [
                        {"role": "tool", "tool_call_id": call["id"], "content": f"{call['id']}!"}
                        for call in CHOSEN["tool_calls"]
                    ]
                    more = [*talk, first.choices[0].message, *answers]
                    await sdk.chat.completions.create(messages=more, **asked)
                    read = first.choices[0].message.model_dump(exclude_none=True)
                    assert read == CHOSEN
                    assert first.choices[0].finish_reason == "tool_calls"
                    assert first.usage.model_dump(exclude_none=True) == CHAT["usage"]
                theirs, ours = server.requests[1], server.requests[3]
                assert ours["messages"] == theirs["messages"]
                assert ours["tools"] == theirs["tools"]

    asyncio.run(run())


def test_messages_through_the_gateway_are_those_with_the_provider() -> None:
    async def run() -> None:
        with serving() as server:
            server.answers = [responds(200, MESSAGE)]
            base = server.url.removesuffix("/v1")
            straight: Any = anthropic.AsyncAnthropic(base_url=base, api_key="k")
            model = RemoteModel("model", server.url, protocol=ANTHROPIC, stream=False)
            async with visit(model) as visited:
                asked: Any = {"model": "model", "max_tokens": 99, "tools": of_inputs(ACT)}
                talk: list[Any] = [{"role": "user", "content": "go"}]
                source = {"type": "base64", "media_type": "image/png", "data": PNG.base64}
                shown = [{"type": "text", "text": "You rose."}, {"type": "image", "source": source}]
                answers = [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": shown},
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_2",
                        "content": "You fell.",
                        "is_error": True,
                    },
                ]
                for sdk in (straight, messages_sdk(visited)):
                    first = await sdk.messages.create(messages=talk, **asked)
                    replies = {"role": "assistant", "content": first.content}
                    more = [*talk, replies, {"role": "user", "content": answers}]
                    await sdk.messages.create(messages=more, **asked)
                    read = [block.model_dump(exclude_none=True) for block in first.content]
                    assert read == BLOCKS
                    assert first.stop_reason == "tool_use"
                    usage = first.usage.model_dump(exclude_none=True)
                    assert usage == MESSAGE["usage"]
                theirs, ours = server.requests[1], server.requests[3]
                assert ours["messages"] == theirs["messages"]
                assert ours["tools"] == theirs["tools"]

    asyncio.run(run())
