import asyncio
import os

import world
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def main() -> None:
    client = OpenAIChatCompletionClient(
        model=world.MODEL, base_url=os.environ["OPENAI_BASE_URL"], model_info=INFO
    )
    agent = AssistantAgent(
        "player",
        client,
        tools=[world.act],
        system_message=world.SYSTEM,
        max_tool_iterations=4,
    )
    await agent.run(task=world.TASK)


asyncio.run(main())
