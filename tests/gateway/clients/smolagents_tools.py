import os

import world
from smolagents import OpenAIModel, ToolCallingAgent, tool

model = OpenAIModel(
    model_id=world.MODEL,
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
agent = ToolCallingAgent(tools=[tool(world.act)], model=model, max_steps=3)
agent.run(world.TASK)
