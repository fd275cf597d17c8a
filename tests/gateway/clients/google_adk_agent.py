import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import world
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main() -> None:
    model = LiteLlm(model=f"openai/{world.MODEL}", api_base=os.environ["OPENAI_BASE_URL"])
    agent = LlmAgent(name="player", model=model, instruction=world.SYSTEM, tools=[world.act])
    runner = InMemoryRunner(agent=agent, app_name="stairs")
    session = await runner.session_service.create_session(app_name="stairs", user_id="u")
    output = types.Content(role="user", parts=[types.Part(text=world.TASK)])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=output):
        pass


asyncio.run(main())
