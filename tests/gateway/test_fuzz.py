"""Random bodies and headers: neither the server nor the session fails."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest

from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer
from tests.gateway.test_asked import CODEX, PNG
from tests.gateway.test_protocols import CHAT_TOOL, FLAT_TOOL, SCHEMA, START, UP
from tests.gateway.test_refusals import ENDPOINTS
from tests.gateway.visits import Visit, visit

PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
CALL = {"id": "c", "type": "function", "function": {"name": "act", "arguments": '{"action": "up"}'}}
TALK: Any = [
    {"role": "system", "content": "Be."},
    *START,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "ok"},
    {"role": "user", "content": [{"type": "text", "text": "and?"}, PICTURE]},
]
SAMPLED: Any = {"temperature": 1.0, "top_p": 0.5, "seed": 1, "stop": ["x"], "stream": True}
SOUND: dict[str, list[Any]] = {
    "/v1/chat/completions": [
        {"model": "m", "messages": TALK[:4], "tools": [CHAT_TOOL], "tool_choice": "auto"},
        {"model": "m", "messages": TALK, "n": 2, "logprobs": True, "user": "u"},
        {"model": "m", "messages": START, "response_format": {"type": "text"}, **SAMPLED},
    ],
    "/v1/completions": [
        {"model": "m", "prompt": "go", "logprobs": 0, **SAMPLED},
        {"model": "m", "prompt": ["go", "on"], "n": 2},
    ],
    "/v1/responses": [
        {"model": "m", "input": "go", "tools": CODEX, "include": [], "store": True, **SAMPLED},
        {
            "model": "m",
            "instructions": "Be.",
            "input": [
                *START,
                {"type": "function_call", "call_id": "c", "name": "act", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "ok"},
                {"type": "item_reference", "id": "msg_0"},
            ],
            "tools": [FLAT_TOOL],
            "previous_response_id": "resp_0",
            "text": {"format": {"type": "text"}},
        },
    ],
    "/anthropic/v1/messages": [
        {
            "model": "m",
            "max_tokens": 9,
            "system": [{"type": "text", "text": "Be."}],
            "messages": [
                *START,
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c", "name": "act", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}],
                },
            ],
            "tools": [{"name": "act", "input_schema": SCHEMA}],
            "tool_choice": {"type": "auto"},
            **SAMPLED,
        }
    ],
    "/anthropic/v1/messages/count_tokens": [{"model": "m", "messages": START}],
    "/mcp": [
        ENDPOINTS["/mcp"],
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "x"}},
    ],
    "/world/step": [{"action": "up"}, {"call": {"name": "act", "arguments": {"action": "up"}}}],
}
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 1.5, 1e300, 2**70, -(2**63), "", "x", "\x00", "é𝄞", "\ud800", "up",
    "auto", "none", "function", "data:image/png;base64,", "<tool_call>{", UP, "<|im_end|>", [], {},
    [None], {"type": "x"}, {"type": None}, {"": ""}, [[[[]]]], "x" * 3000, {"role": "tool"},
]  # fmt: skip
HEADERS: list[tuple[str, list[bytes]]] = [
    ("content-type", [b"", b"text/plain", b"application/json; charset=utf-16", b"\xff"]),
    ("accept", [b"", b"text/event-stream", b"\xe9"]),
    ("content-encoding", [b"gzip", b"x"]),
    ("x-stainless-retry-count", [b"", b"1", b"-1", b"0", b"\xb2", b"9" * 5000]),
    ("x-api-key", [b"", b"x", b"\xff\xfe"]),
    ("mcp-protocol-version", [b"2025-06-18", b"x"]),
    ("anthropic-version", [b"2023-06-01", b""]),
    ("idempotency-key", [b"x", b""]),
    ("connection", [b"close", b"keep-alive", b"upgrade"]),
    ("expect", [b"100-continue"]),
    ("range", [b"bytes=0-1"]),
    ("x-forwarded-for", [b"1.2.3.4"]),
]


def bent(value: Any, rng: random.Random) -> Any:
    """Return the value with random parts dropped, repeated or replaced."""
    if rng.random() < 0.08:
        return rng.choice(ODD)
    if isinstance(value, dict):
        found = {
            (name if rng.random() > 0.01 else name + "_"): bent(part, rng)
            for name, part in value.items()
            if rng.random() > 0.04
        }
        if rng.random() < 0.05:
            found[rng.choice(["n", "type", "content", "id", "stop", "x"])] = rng.choice(ODD)
        return found
    if isinstance(value, list):
        parts = [bent(part, rng) for part in value if rng.random() > 0.05]
        return parts * 2 if rng.random() < 0.03 else parts
    return value


def written(body: Any, rng: random.Random) -> bytes:
    """Return the body as bytes, some of which may be corrupted."""
    text = json.dumps(body, ensure_ascii=rng.random() < 0.5)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if rng.random() < 0.15:
        for _ in range(rng.randint(1, 5)):
            place = rng.randrange(len(data) + 1)
            match rng.randrange(3):
                case 0:
                    data[place : place + rng.randint(1, 9)] = b""
                case 1:
                    data[place:place] = rng.randbytes(rng.randint(1, 9))
                case _:
                    data[place:place] = rng.choice([b"\xed\xa0\x80", b"NaN", b"1e999", b'"', b"["])
    return bytes(data)


async def sent(visited: Visit, rng: random.Random) -> tuple[str, int]:
    """Send one random request; return its status."""
    path = rng.choice(list(SOUND))
    data = written(bent(rng.choice(SOUND[path]), rng), rng)
    headers: list[tuple[str, bytes]] = [
        (name, rng.choice(values)) for name, values in HEADERS if rng.random() < 0.1
    ]
    if rng.random() < 0.05:
        tokens = [b"Bearer", b"Bearer \xff", b"Basic x", b"", b"Bearer " + b"x" * 5000]
        headers.append(("authorization", rng.choice(tokens)))
    if rng.random() < 0.05:
        path += rng.choice(["/", "x", "?token=%ff", "?x=1", "//", "/%00", "/../world"])
    method = rng.choices(["POST", "GET", "PUT", "PATCH"], [95, 3, 1, 1])[0]
    answer = await visited.client.request(method, path, content=data, headers=headers)
    assert answer.status_code < 500, (path, data, headers, answer.text)
    if answer.status_code in (400, 413) and answer.text:
        assert answer.json(), "a refusal says why"
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        assert "event: error" not in answer.text, (path, data)
    return path.partition("?")[0], answer.status_code


def check(requests: int, seed: int) -> None:
    rng, words = random.Random(seed), random.Random(seed)

    def act(messages: Any) -> str:
        return words.choice(["up", UP, "", f"a {UP}{UP}", "<tool_call>{", "é" * 50])

    async def run() -> None:
        statuses: Counter[int] = Counter()
        answered: set[str] = set()
        async with visit(ScriptedModel(act, renderer=renderer()), world=Stairs(10**9)) as visited:
            for start in range(0, requests, 8):
                many = range(min(8, requests - start))
                for path, status in await asyncio.gather(*(sent(visited, rng) for _ in many)):
                    statuses[status] += 1
                    answered |= {path} if status == 200 else set()
            assert answered >= set(SOUND), "nothing of it was understood"
            assert statuses[400] > requests / 20
            calls = len(visited.session.graph.calls)
            assert (await visited.chat(START)).status_code == 200
            assert (await visited.post("/world/step", {"action": "up"})).json()["valid"]
            assert len(visited.session.graph.calls) == calls + 1
            episode = await visited.end()
            assert str(episode.outcome) == "failure", episode.outcome  # given up, and nothing else
        print(dict(statuses))

    asyncio.run(run())


def test_random_requests_break_neither_the_server_nor_the_session() -> None:
    check(400, seed=1)


@pytest.mark.slow
def test_five_thousand_random_requests_break_neither_the_server_nor_the_session() -> None:
    check(5_000, seed=2)
