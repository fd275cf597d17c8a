import os

import world
from agno.agent import Agent
from agno.models.openai import OpenAIChat

os.environ["AGNO_TELEMETRY"] = "false"
model = OpenAIChat(id=world.MODEL, base_url=os.environ["OPENAI_BASE_URL"])
agent = Agent(model=model, tools=[world.act], instructions=world.SYSTEM, telemetry=False)
agent.run(world.TASK)
