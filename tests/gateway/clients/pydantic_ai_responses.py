import world
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel

agent = Agent(OpenAIResponsesModel(world.MODEL), instructions=world.SYSTEM, tools=[world.act])
agent.run_sync(world.TASK)
