import os

import world
from strands import Agent, tool
from strands.models.openai import OpenAIModel

model = OpenAIModel(
    client_args={"base_url": os.environ["OPENAI_BASE_URL"]},
    model_id=world.MODEL,
)
agent = Agent(model=model, tools=[tool(world.act)], system_prompt=world.SYSTEM)
agent(world.TASK)
