"""AutoGen: a round-robin group chat of assistant agents with scripted clients (in memory)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient

SAYS = "I looked to the left, and there is nothing."


async def talk(members: int, messages: int) -> int:
    agents = [
        AssistantAgent(f"m{n}", ReplayChatCompletionClient([SAYS] * (1 + messages // members)))
        for n in range(members)
    ]
    ending = MaxMessageTermination(messages + 1)  # the task counts as one
    ended = await RoundRobinGroupChat(agents, termination_condition=ending).run(task="Go on.")
    return len(ended.messages) - 1


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Let `members` send `messages`; the seconds of processor time that this took."""
    started = time.process_time()
    sent = asyncio.run(talk(request["members"], request["messages"]))
    seconds = time.process_time() - started
    assert sent == request["messages"], sent
    return {"seconds": seconds}
