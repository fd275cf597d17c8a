"""Requests that the gateway rejects, in each protocol's format, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx

from palaestra.core.budget import Budget
from palaestra.core.errors import ContextTooLong, InfrastructureFault
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Limit, Owner
from palaestra.gateway.gateway import Gateway
from palaestra.gateway.request_limits import Limits
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer
from tests.gateway.visits import Visit, Visited, visit

START: Any = [{"role": "user", "content": "start"}]
CHAT: Any = {"model": "m", "messages": START}
MESSAGES: Any = {"model": "m", "max_tokens": 5, "messages": START}
RPC: Any = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
ENDPOINTS: Any = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"model": "m", "input": "start"},
    "/anthropic/v1/messages": MESSAGES,
    "/mcp": {**RPC, "method": "tools/call", "params": {"name": "act", "arguments": {"action": ""}}},
    "/world/step": {"action": "up"},
}


def scripted(*replies: str) -> ScriptedModel:
    return ScriptedModel(replies or ["up"] * 9, renderer=renderer())


def reason(path: str, answer: httpx.Response) -> str:
    """Return the reason of an error in the format of the protocol at `path`."""
    body = answer.json()
    if path.endswith("/mcp"):
        assert (body["jsonrpc"], "code" in body["error"]) == ("2.0", True)
    elif "/anthropic/" in path:
        assert body["type"] == "error" and body["error"]["type"]
    else:
        assert body["error"]["type"]
    return str(body["error"]["message"])


class Slow(ScriptedModel):
    """Replies when the test lets it."""

    def __init__(self) -> None:
        super().__init__(["up"] * 9, renderer=renderer())
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def generate(self, prompt: Prompt) -> Generation:
        self.begun.set()
        await self.go.wait()
        return await super().generate(prompt)


class Broken(Model):
    """Raises a given error."""

    name = "broken"

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def generate(self, prompt: Prompt) -> Generation:
        raise self.errors.pop(0)


def test_a_session_needs_its_own_token() -> None:
    async def run() -> None:
        agent = Visited(Gateway())
        async with visit(scripted(), agent=agent) as one, visit(scripted(), agent=agent) as other:
            for path, body in ENDPOINTS.items():
                for token, status in ((None, 401), ("wrong", 401), (other.endpoint.token, 403)):
                    headers = {"Authorization": f"Bearer {token}" if token else ""}
                    answer = await one.post(path, body, headers=headers)
                    assert answer.status_code == status
                    assert "token" in reason(path, answer)
            gone = one.address.replace(one.endpoint.id, "nobody") + "/world"
            assert (await one.client.get(gone)).status_code == 404
            assert not one.session.graph.calls and not one.session.steps

    asyncio.run(run())


def test_after_the_end_every_request_gets_status_410() -> None:
    async def run() -> None:
        agent = Visited(Gateway())
        async with visit(scripted(), agent=agent), visit(scripted(), agent=agent) as one:
            ended = await one.client.delete(one.address)
            assert ended.status_code == 204
            await one.life
            for path, body in ENDPOINTS.items():
                answer = await one.post(path, body)
                assert answer.status_code == 410
                assert "ended" in reason(path, answer)
                assert answer.headers["x-should-retry"] == "false"

    asyncio.run(run())


def test_a_budget_that_runs_out_ends_the_session() -> None:
    async def run() -> None:
        async with visit(scripted(), budget=Budget(turns=1)) as visited:
            step = await visited.post("/world/step", {"action": "up"})
            assert step.json()["outcome"] == "truncated(turns)"
            assert (await visited.life).outcome.limit is Limit.TURNS

    asyncio.run(run())


def test_malformed_requests_are_refused_in_each_protocols_format() -> None:
    wrong: list[tuple[str, Any]] = [
        ("/v1/chat/completions", {"model": "m"}),
        ("/v1/chat/completions", {**CHAT, "n": 2, "stream": True}),
        ("/v1/chat/completions", {**CHAT, "n": 17}),
        ("/v1/chat/completions", {**CHAT, "tools": [{"type": "function"}]}),
        ("/v1/completions", {"model": "m", "prompt": [1, 2]}),
        ("/v1/completions", {"model": "m", "prompt": ["x"] * 17}),
        ("/v1/completions", {"model": "m", "prompt": "x", "echo": True}),
        ("/v1/chat/completions", {**CHAT, "response_format": {"type": "grammar"}}),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 0}),
        ("/v1/chat/completions", [1]),
        ("/v1/responses", {"model": "m", "input": []}),
        ("/v1/responses", {"model": "m", "input": "x", "previous_response_id": "resp_99"}),
        ("/v1/responses", {"model": "m", "input": [{"type": "computer_call"}]}),
        ("/v1/responses", {"model": "m", "input": [{"type": "item_reference", "id": "msg_9"}]}),
        ("/anthropic/v1/messages", {"model": "m", "messages": START}),
        ("/anthropic/v1/messages", {**MESSAGES, "tool_choice": {"type": "tool"}}),
        ("/mcp", {"method": "ping"}),
        ("/mcp", [RPC]),
        ("/world/step", {}),
        ("/world/step", {"action": "up", "call": {"name": "up"}}),
    ]
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    wrong.append(
        ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": [image]}]})
    )

    async def run() -> None:
        async with visit(scripted()) as visited:
            for path, body in wrong:
                answer = await visited.post(path, body)
                assert answer.status_code in (400, 404), (path, body)
                assert reason(path, answer)
            for path in ENDPOINTS:
                for data in (b"{", b"\xff", b"NaN", b"[" * 100_000, b'{"model": 1e999}'):
                    answer = await visited.client.post(path, content=data)
                    assert answer.status_code == 400
                    assert reason(path, answer)
            assert (await visited.client.get("/mcp")).status_code == 405
            assert not visited.session.graph.calls and not visited.session.steps
            unknown = (await visited.rpc("resources/list")).json()
            assert unknown["error"]["code"] == -32601

    asyncio.run(run())


def test_bodies_too_large_or_without_an_end_are_cut_off() -> None:
    async def endless(visited: Visit, path: str) -> bytes:
        """Say that a hundred bytes will come, send one, and wait until the server hangs up."""
        url = httpx.URL(visited.address)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = f"POST {url.path}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        writer.write(f"{head}Authorization: Bearer {visited.endpoint.token}\r\n\r\n{{".encode())
        async with asyncio.timeout(10):
            return await reader.read()

    async def flood() -> Any:
        for _ in range(100):
            yield b" " * 1000

    async def run() -> None:
        async with visit(scripted(), limits=Limits(5000, 0.2)) as visited:
            for path in ENDPOINTS:
                large = await visited.client.post(path, content=b" " * 6000)
                assert large.status_code == 413
                assert reason(path, large)
            for slow in await asyncio.gather(*(endless(visited, path) for path in ENDPOINTS)):
                assert slow.startswith(b"HTTP/1.1 408 ")
            with contextlib.suppress(httpx.WriteError, httpx.ReadError):
                flooded = await visited.client.post("/mcp", content=flood())
                assert flooded.status_code == 413
            assert (await visited.chat(START)).status_code == 200

    asyncio.run(run())


def test_a_disconnect_during_a_stream_leaves_the_session_intact() -> None:
    async def run() -> None:
        model = Slow()
        async with visit(model, keepalive=0.02) as visited:
            body = {**CHAT, "stream": True}
            async with visited.client.stream("POST", "/v1/chat/completions", json=body) as answer:
                await anext(answer.aiter_raw())  # a sign of life; the reply is not there yet
            model.go.set()
            again = (await visited.chat([*START, *START])).json()
            assert again["palaestra"]["call"] == 1
            first, second = visited.session.graph.calls
            assert first.completion and second.completion

    asyncio.run(run())


def test_a_reply_to_a_disconnected_client_is_recorded() -> None:
    async def run() -> None:
        model = Slow()
        async with visit(model) as visited:
            asking = asyncio.ensure_future(visited.chat(START))
            await model.begun.wait()
            asking.cancel()
            model.go.set()
            await visited.chat([*START, *START])
            assert len(visited.session.graph.calls) == 2

    asyncio.run(run())


def test_a_reply_in_progress_when_the_episode_ends_is_cancelled() -> None:
    async def run() -> None:
        model = Slow()
        async with visit(model, world=Stairs(1)) as visited:
            asking = asyncio.ensure_future(visited.chat(START))
            await model.begun.wait()
            await visited.post("/world/step", {"action": "up"})
            assert (await asking).status_code == 410
            assert (await visited.life).outcome.solved

    asyncio.run(run())


def test_a_conversation_too_long_is_the_programs_to_shorten_and_ends_it_otherwise() -> None:
    async def run() -> None:
        async with visit(Broken(ContextTooLong("too long"))) as visited:
            answer = await visited.chat(START)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "context_length_exceeded"
            assert not visited.endpoint.ended.is_set()
            assert (await visited.end()).outcome.limit is Limit.CONTEXT

    asyncio.run(run())


def test_what_infrastructure_breaks_is_no_result_of_the_program() -> None:
    async def run() -> None:
        async with visit(Broken(InfrastructureFault("model", "gone"))) as visited:
            assert (await visited.chat(START)).status_code == 410
            assert (await visited.life).outcome.owner is Owner.INFRASTRUCTURE

    asyncio.run(run())


def test_requests_at_once_are_each_recorded_once() -> None:
    async def run() -> None:
        async with visit(scripted()) as visited:
            answers = await asyncio.gather(*(visited.chat(START) for _ in range(12)))
            calls = sorted(answer.json()["palaestra"]["call"] for answer in answers)
            assert calls == list(range(12))
            assert len(visited.session.graph.calls) == 12

    asyncio.run(run())
