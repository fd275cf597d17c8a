"""Bodies as three kinds of servers send them: OpenAI's, Anthropic's, and vLLM's with reasoning.

Each `..._STREAM` says the same as the whole body before it, in events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

# ── OpenAI ───────────────────────────────────────────────────────────────────

GPT_USAGE = {
    "prompt_tokens": 134,
    "completion_tokens": 253,
    "total_tokens": 387,
    "prompt_tokens_details": {"cached_tokens": 128, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 192,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
GPT_CALLS = [
    {
        "id": "call_Yt1gWQ0vJ5kX2bq7cPa9mZ3d",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Paris","unit":"celsius"}'},
    },
    {
        "id": "call_pL8sN4eR6uH0jK2wVx5yTz7A",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
    },
]
GPT: dict[str, Any] = {
    "id": "chatcmpl-C9xPq2vT7nR4mK8sW1bY6dE3",
    "object": "chat.completion",
    "created": 1763900000,
    "model": "gpt-5-mini-2025-08-07",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": GPT_CALLS,
                "refusal": None,
                "annotations": [],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": GPT_USAGE,
    "service_tier": "default",
    "system_fingerprint": None,
}


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {name: GPT[name] for name in ("id", "created", "model", "service_tier")}
    return head | {"object": "chat.completion.chunk", "choices": [choice], "usage": None} | more


def _call(index: int, call: dict[str, Any], cuts: Sequence[int]) -> list[dict[str, Any]]:
    """Return a call as events: its beginning without arguments, then these in chunks."""
    function, arguments = call["function"], call["function"]["arguments"]
    start = call | {"index": index, "function": {"name": function["name"], "arguments": ""}}
    ends = [*cuts, len(arguments)]
    chunks = [arguments[a:b] for a, b in zip([0, *cuts], ends, strict=True)]
    deltas = [{"index": index, "function": {"arguments": chunk}} for chunk in chunks]
    return [_chunk({"tool_calls": [delta]}) for delta in (start, *deltas)]


GPT_STREAM = [
    _chunk({"role": "assistant", "content": None, "refusal": None}),
    *_call(0, GPT_CALLS[0], (2, 9, 20)),
    *_call(1, GPT_CALLS[1], (8,)),
    _chunk({}, "tool_calls"),
    _chunk({}) | {"choices": [], "usage": GPT_USAGE},
]

# ── vLLM ─────────────────────────────────────────────────────────────────────

VLLM_CALLS = [
    {
        "id": "chatcmpl-tool-2b6f8c1d9e3a4f70",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    },
    {
        "id": "chatcmpl-tool-7c0d5e2f8a1b4c63",
        "type": "function",
        "function": {"name": "clock", "arguments": "{}"},
    },
]
VLLM_THOUGHT = "The user wants the weather in Paris, and the time. Two calls."
VLLM: dict[str, Any] = {
    "id": "chatcmpl-5d1c7f0a9b3e4c2d8e6f",
    "object": "chat.completion",
    "created": 1763900100,
    "model": "Qwen/Qwen3-8B",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "I will look.",
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": VLLM_CALLS,
                "reasoning_content": VLLM_THOUGHT,
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
            "stop_reason": None,
            "token_ids": None,
        }
    ],
    "service_tier": None,
    "system_fingerprint": None,
    "usage": {
        "prompt_tokens": 211,
        "total_tokens": 283,
        "completion_tokens": 72,
        "prompt_tokens_details": None,
    },
    "prompt_logprobs": None,
    "kv_transfer_params": None,
}
VLLM_STREAM = [
    _chunk({"role": "assistant", "content": ""}),
    *(
        _chunk({"reasoning_content": chunk})
        for chunk in (VLLM_THOUGHT[:9], VLLM_THOUGHT[9:40], VLLM_THOUGHT[40:])
    ),
    _chunk({"content": "I will"}),
    _chunk({"content": " look."}),
    *_call(0, VLLM_CALLS[0], (4, 10)),
    *_call(1, VLLM_CALLS[1], ()),
    _chunk({}, "tool_calls"),
    _chunk({}) | {"choices": [], "usage": VLLM["usage"]},
]

# ── Anthropic ────────────────────────────────────────────────────────────────

SIGNATURE = "EqQBCkYIBxgCKkDxN1h0Zr3vT8mW2kQ5sJ9pL4bY7cE0aG6fU1iO+dR/nX3zVtHwMqKyS8uA5jPeBg=="
CLAUDE_BLOCKS: list[dict[str, Any]] = [
    {
        "type": "thinking",
        "thinking": "Two cities, so two calls that do not depend on each other.",
        "signature": SIGNATURE,
    },
    {"type": "text", "text": "I'll check both cities."},
    {
        "type": "tool_use",
        "id": "toolu_01A09q90qw90lq917835lq9",
        "name": "get_weather",
        "input": {"city": "Paris", "unit": "celsius"},
    },
    {
        "type": "tool_use",
        "id": "toolu_01B12r34st56uv78wx90yz",
        "name": "get_weather",
        "input": {"city": "Oslo"},
    },
]
CLAUDE_USAGE = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 100,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 97,
    "service_tier": "standard",
}


def claude(blocks: Sequence[dict[str, Any]], stop: str = "tool_use") -> dict[str, Any]:
    """Return a message of those blocks."""
    return {
        "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": CLAUDE_USAGE,
    }


def claude_stream(blocks: Sequence[dict[str, Any]], stop: str = "tool_use") -> list[dict[str, Any]]:
    """Return the events of such a message."""
    usage = CLAUDE_USAGE | {"output_tokens": 1}
    start = claude([], stop) | {"stop_reason": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        begun, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": stop, "stop_sequence": None}
    tokens = {"output_tokens": CLAUDE_USAGE["output_tokens"]}
    events.append({"type": "message_delta", "delta": ended, "usage": tokens})
    return [*events, {"type": "message_stop"}]


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the events of a block."""
    match block["type"]:
        case "thinking":
            text = block["thinking"]
            chunks = [{"type": "thinking_delta", "thinking": t} for t in (text[:11], text[11:])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*chunks, signed]
        case "text":
            text = block["text"]
            return {"type": "text", "text": ""}, [
                {"type": "text_delta", "text": t} for t in (text[:4], text[4:])
            ]
        case "tool_use":
            text = json.dumps(block["input"])
            return block | {"input": {}}, [
                {"type": "input_json_delta", "partial_json": t} for t in ("", text[:7], text[7:])
            ]
        case _:
            return block, []


CLAUDE = claude(CLAUDE_BLOCKS)
CLAUDE_STREAM = claude_stream(CLAUDE_BLOCKS)
