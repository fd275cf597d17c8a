"""AutoGen: assistant agents with a scripted client and a tool (in memory)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

ABLE = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    structured_output=False,
    family=ModelFamily.UNKNOWN,
)


async def tick() -> str:
    """Let time pass."""
    return "ok"


def reply(turn: int, turns: int) -> CreateResult:
    call = [FunctionCall(id=str(turn), name="tick", arguments="{}")]
    over = turn == turns
    return CreateResult(
        finish_reason="stop" if over else "function_calls",
        content="done" if over else call,
        usage=RequestUsage(prompt_tokens=0, completion_tokens=0),
        cached=False,
    )


async def live(turns: int) -> int:
    replies = [reply(turn, turns) for turn in range(turns + 1)]
    agent = AssistantAgent(
        "agent",
        model_client=ReplayChatCompletionClient(replies, model_info=ABLE),
        tools=[tick],
        max_tool_iterations=turns + 1,
    )
    ended = await agent.run(task="Go on.")
    return sum(type(message).__name__ == "ToolCallExecutionEvent" for message in ended.messages)


async def all_sessions(sessions: int, turns: int) -> list[int]:
    return await asyncio.gather(*(live(turns) for _ in range(sessions)))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run `sessions` agents of `turns` tool calls; the seconds that this took."""
    sessions, turns = request["sessions"], request["turns"]
    started = time.perf_counter()
    lived = asyncio.run(all_sessions(sessions, turns))
    seconds = time.perf_counter() - started
    assert lived == [turns] * sessions, lived
    return {"seconds": seconds}
