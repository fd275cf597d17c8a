"""After the end of an episode a tool loop's last request gets a reply without calls or tokens."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from palaestra.core.budget import Budget
from palaestra.core.errors import InfrastructureFault
from palaestra.core.outcome import Limit
from palaestra.gateway.gateway import Gateway
from palaestra.gateway.session_endpoint import CLOSING_TEXT, MAX_CLOSING_REPLIES, SessionEndpoint
from tests.core.small import Stairs
from tests.gateway.test_refusals import CHAT, ENDPOINTS, START, Broken, scripted
from tests.gateway.test_streams import words_of
from tests.gateway.visits import Visit, Visited, visit
from tests.training.runs import command, environment

ASKING = ("/v1/chat/completions", "/v1/responses", "/anthropic/v1/messages")


class Patient(Visited):
    """Keeps its endpoint open for as long as the test needs it."""

    def __init__(self) -> None:
        super().__init__(Gateway())
        self.leave = asyncio.Event()

    async def serve(self, endpoint: SessionEndpoint, address: str) -> None:
        await super().serve(endpoint, address)
        await self.leave.wait()


def words(path: str, answer: Any) -> tuple[str, Any]:
    """Return the text of an answer and its finish reason."""
    if path.endswith("completions"):
        (choice,) = answer["choices"]
        return choice["message"]["content"], choice["finish_reason"]
    if path.endswith("responses"):
        (item,) = answer["output"]
        return item["content"][0]["text"], answer["status"]
    (block,) = answer["content"]
    return block["text"], answer["stop_reason"]


async def streamed(visited: Visit, path: str) -> list[str]:
    body = {**ENDPOINTS[path], "stream": True}
    async with visited.client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        return [line async for line in answer.aiter_lines() if line.startswith("data: ")]


@pytest.mark.parametrize("path", ASKING)
def test_the_closing_request_of_a_loop_gets_a_reply_that_is_not_recorded(path: str) -> None:
    async def run() -> None:
        agent = Patient()
        other = visit(scripted(), agent=agent)  # the gateway listens on for it
        async with other, visit(scripted(), world=Stairs(1), agent=agent) as visited:
            await visited.post(path, ENDPOINTS[path])
            done = await visited.post("/world/step", {"action": "up"})
            assert done.json()["over"]
            answer = (await visited.post(path, ENDPOINTS[path])).raise_for_status().json()
            ends = {"/v1/chat/completions": "stop", "/v1/responses": "completed"}
            assert words(path, answer) == (CLOSING_TEXT, ends.get(path, "end_turn"))
            assert answer["palaestra"]["call"] is None
            events = [line for line in await streamed(visited, path) if line != "data: [DONE]"]
            shown = [json.loads(line.removeprefix("data: ")) for line in events]
            assert any('"call": null' in line for line in events)
            assert words_of(path, shown) == [CLOSING_TEXT]
            assert len(visited.session.graph.calls) == 1
            agent.leave.set()
            episode = await visited.life
            assert episode.outcome.solved and len(episode.calls) == 1
            assert (await visited.post(path, ENDPOINTS[path])).status_code == 410

    asyncio.run(run())


def test_closing_replies_are_bounded_and_the_world_gives_none() -> None:
    async def run() -> None:
        agent = Patient()
        async with visit(scripted(), world=Stairs(1), agent=agent) as visited:
            await visited.post("/world/step", {"action": "up"})
            assert (await visited.post("/world/step", {"action": "up"})).status_code == 410
            call = (await visited.rpc("tools/call", name="act", arguments={"action": "up"})).json()
            assert call["result"]["isError"] and "success" in call["result"]["content"][0]["text"]
            for _ in range(MAX_CLOSING_REPLIES):
                assert (await visited.chat(START)).status_code == 200
            assert (await visited.chat(START)).status_code == 410
            assert len(visited.session.steps) == 1 and not visited.session.graph.calls
            agent.leave.set()

    asyncio.run(run())


def test_a_request_that_finds_the_budget_spent_gets_one_and_one_after_an_error_does_not() -> None:
    async def run() -> None:
        agent = Patient()
        async with visit(scripted(), budget=Budget(tokens=1), agent=agent) as visited:
            await visited.chat(START)
            late = (await visited.chat(START)).raise_for_status().json()
            assert late["palaestra"]["call"] is None
            agent.leave.set()
            assert (await visited.life).outcome.limit is Limit.TOKENS
        agent = Patient()
        async with visit(Broken(InfrastructureFault("model", "gone")), agent=agent) as visited:
            for _ in range(2):
                assert (await visited.chat(START)).status_code == 410
            agent.leave.set()

    asyncio.run(run())


def test_openais_own_sdk_reads_the_closing_reply() -> None:
    async def run() -> None:
        agent = Patient()
        async with visit(scripted(), world=Stairs(1), agent=agent) as visited:
            await visited.post("/world/step", {"action": "up"})
            sdk = openai.AsyncOpenAI(
                base_url=f"{visited.address}/v1", api_key=visited.endpoint.token, max_retries=0
            )
            chat = await sdk.chat.completions.create(model="m", messages=START)
            assert chat.choices[0].message.content == CLOSING_TEXT
            assert chat.choices[0].message.tool_calls is None
            async with sdk.responses.stream(model="m", input="on") as stream:
                async for _ in stream:
                    pass
                assert (await stream.get_final_response()).output_text == CLOSING_TEXT
            agent.leave.set()

    asyncio.run(run())


@pytest.mark.slow
def test_the_last_session_that_is_served_has_one_too(tmp_path: Path) -> None:
    words = command("serve", "probe/umbrella-4", "--model", "random", "--run", tmp_path / "a")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stdout is not None
        shown = json.loads(server.stdout.readline())
        headers = {"Authorization": f"Bearer {shown['palaestra_token']}"}
        with httpx.Client(headers=headers, trust_env=False, timeout=30) as client:
            chat = f"{shown['openai_base_url']}/chat/completions"
            assert client.post(chat, json=CHAT).json()["palaestra"]["call"] == 0
            view: Any = {"over": False}
            while not view["over"]:
                step = {"action": "take"}
                view = client.post(f"{shown['palaestra_world_url']}/step", json=step).json()
            assert client.post(chat, json=CHAT).json()["palaestra"]["call"] is None
        assert server.wait(60) == 0
