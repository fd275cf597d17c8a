"""pydantic-ai: agents with a FunctionModel and a tool (in memory)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run `sessions` runs of `turns` tool calls; the seconds that this took."""
    sessions, turns = request["sessions"], request["turns"]

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 2 * turns:  # the question, and two messages per turn
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("tick", {})])

    agent = Agent(FunctionModel(reply))

    @agent.tool_plain
    async def tick() -> str:
        """Let time pass."""
        return "ok"

    async def live() -> int:
        ended = await agent.run("Go on.", usage_limits=UsageLimits(request_limit=None))
        return len(ended.all_messages())

    async def all_sessions() -> list[int]:
        return await asyncio.gather(*(live() for _ in range(sessions)))

    started = time.perf_counter()
    lived = asyncio.run(all_sessions())
    seconds = time.perf_counter() - started
    assert lived == [2 * turns + 2] * sessions, lived
    return {"seconds": seconds}
