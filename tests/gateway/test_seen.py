"""Images of the environment, and which of the model's calls proposed an action."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.message import Image, ToolCall
from palaestra.core.task import Task
from palaestra.gateway.mcp_endpoint import CALL_ID
from tests.core.small import Stairs
from tests.gateway.native_model import Native, replied
from tests.gateway.test_message_parts import ACT, of_functions
from tests.gateway.visits import visit

ABOVE, BELOW = Image.of(b"\x89PNG\r\n\x1a\n up"), Image.of(b"GIF89a down")


class Painted(Stairs):
    """Stairs that show two images."""

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        seen, signals = await super().reset(task)
        return replace(seen, images=(ABOVE, BELOW)), signals

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        done, signals = await super().step(action)
        return replace(done, observation=replace(done.observation, images=(BELOW,))), signals


def test_images_of_the_environment_are_shown_by_mcp_and_by_plain_json() -> None:
    def content(answer: Any) -> Any:
        return answer.json()["result"]["content"][1:]

    shown = [
        {"type": "image", "data": one.base64, "mimeType": one.media_type} for one in (ABOVE, BELOW)
    ]

    async def run() -> None:
        async with visit(Native(), world=Painted()) as visited:
            assert content(await visited.rpc("tools/call", name="look")) == shown
            view = (await visited.client.get("/world")).json()
            assert view["images"] == [ABOVE.url, BELOW.url]
            done = await visited.rpc("tools/call", name="act", arguments={"action": "up"})
            assert content(done) == shown[1:]
            step = (await visited.post("/world/step", {"action": "up"})).json()
            assert step["images"] == [BELOW.url]

    asyncio.run(run())


def test_the_id_of_the_models_call_says_which_reply_proposed_an_action() -> None:
    """Else it is the latest one with such a call."""
    calls = [ToolCall("act", {"action": "up"}, f"id_{number}") for number in range(3)]

    async def run() -> None:
        async with visit(Native(*[replied("", call) for call in calls])) as visited:
            for _ in calls:
                await visited.chat([{"role": "user", "content": "go"}], tools=of_functions(ACT))
            arguments, meta = {"action": "up"}, {CALL_ID: "id_1"}
            await visited.rpc("tools/call", name="act", arguments=arguments, _meta=meta)
            await visited.post("/world/step", {"action": "up", "call_id": "id_0"})
            await visited.post("/world/step", {"action": "up"})
            assert [step.call for step in visited.session.steps] == [1, 0, 2]

    asyncio.run(run())
