"""A planner that hands over to a worker, whose models have names of their own: palaestra/ROLE."""

import asyncio
import os

import world
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


def model(role: str) -> OpenAIChatCompletionsModel:
    client = AsyncOpenAI(base_url=os.environ["OPENAI_BASE_URL"])
    return OpenAIChatCompletionsModel(f"palaestra/{role}", client)


async def main() -> None:
    planner = Agent(name="planner", instructions="Say what to do next.", model=model("planner"))
    worker = Agent(
        name="worker",
        instructions=world.SYSTEM,
        model=model("worker"),
        tools=[function_tool(world.act)],
    )
    plan = await Runner.run(planner, world.TASK, max_turns=2)
    await Runner.run(worker, f"{world.TASK}\nThe plan: {plan.final_output}", max_turns=9)


asyncio.run(main())
