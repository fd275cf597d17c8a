import world
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel(world.MODEL), instructions=world.SYSTEM, tools=[world.act])
agent.run_sync(world.TASK)
