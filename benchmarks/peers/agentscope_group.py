"""AgentScope: ReAct agents in a message hub that speak in turn, with a scripted model (in memory).

The hub passes each reply on to all other agents, and a sequential pipeline lets them speak: the
conversation of AgentScope's documentation. Nothing is printed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import agentscope
from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIMultiAgentFormatter
from agentscope.message import Msg, TextBlock
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.pipeline import MsgHub, sequential_pipeline

SAYS = "I looked to the left, and there is nothing."


class Scripted(ChatModelBase):
    """A model that always says the same."""

    async def __call__(self, *args: Any, **options: Any) -> ChatResponse:
        return ChatResponse([TextBlock(type="text", text=SAYS)])


async def talk(members: int, messages: int) -> int:
    agents = [
        ReActAgent(f"m{n}", "Talk.", Scripted("scripted", False), OpenAIMultiAgentFormatter())
        for n in range(members)
    ]
    for agent in agents:
        agent.set_console_output_enabled(False)
    async with MsgHub(agents, announcement=Msg("user", "Go on.", "user")):
        for _ in range(messages // members):
            await sequential_pipeline(agents)
        await sequential_pipeline(agents[: messages % members])
    return await agents[0].memory.size() - 1  # the announcement


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Let `members` send `messages`; the seconds of processor time that this took."""
    agentscope.init(logging_level="ERROR")
    started = time.process_time()
    sent = asyncio.run(talk(request["members"], request["messages"]))
    seconds = time.process_time() - started
    assert sent == request["messages"], sent
    return {"seconds": seconds}
