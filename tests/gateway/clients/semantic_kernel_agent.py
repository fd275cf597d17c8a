import asyncio
import os

import world
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class World:
    @kernel_function(description="Act in the world.")
    def act(self, action: str) -> str:
        return world.act(action)


async def main() -> None:
    client = AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"])
    service = OpenAIChatCompletion(ai_model_id=world.MODEL, async_client=client)
    agent = ChatCompletionAgent(
        service=service, name="player", instructions=world.SYSTEM, plugins=[World()]
    )
    await agent.get_response(messages=world.TASK)


asyncio.run(main())
