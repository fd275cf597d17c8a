"""A group chat of two agents, whose models have names of their own: palaestra/ROLE."""

import asyncio
import os

import world
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
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
    planner = AssistantAgent("planner", client("planner"), system_message="Say what to do next.")
    worker = AssistantAgent(
        "worker", client("worker"), tools=[world.act], system_message=world.SYSTEM
    )
    team = RoundRobinGroupChat([planner, worker], termination_condition=None, max_turns=6)
    await team.run(task=world.TASK)


asyncio.run(main())
