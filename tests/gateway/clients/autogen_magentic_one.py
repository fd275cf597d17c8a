"""A Magentic-One team: an orchestrator with ledgers (palaestra/planner) and one worker."""

import asyncio
import os

import world
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import FunctionalTermination
from autogen_agentchat.teams import MagenticOneGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


def client(role: str) -> OpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(
        model=f"palaestra/{role}", base_url=os.environ["OPENAI_BASE_URL"], model_info=INFO
    )


async def main() -> None:
    worker = AssistantAgent(
        "worker",
        client("worker"),
        description="Acts in the world.",
        tools=[world.act],
        system_message=world.SYSTEM,
    )
    team = MagenticOneGroupChat(
        [worker],
        client("planner"),
        termination_condition=FunctionalTermination(lambda messages: world.over),
        max_turns=6,
    )
    await team.run(task=world.TASK)


asyncio.run(main())
