"""A CAMEL workforce: coordinator and task planner (palaestra/planner), and one worker."""

import asyncio
import os

import world
from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.societies.workforce import Workforce
from camel.tasks import Task
from camel.types import ModelPlatformType
from camel.utils import BaseTokenCounter


class Characters(BaseTokenCounter):
    """Counts a quarter of the characters; CAMEL's own counter downloads a vocabulary."""

    def count_tokens_from_messages(self, messages: list[dict[str, object]]) -> int:
        return len(str(messages)) // 4

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def decode(self, token_ids: list[int]) -> str:
        return bytes(token_ids).decode()


def agent(role: str, prompt: str, **options: object) -> ChatAgent:
    model = ModelFactory.create(
        ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
        f"palaestra/{role}",
        api_key=os.environ["OPENAI_API_KEY"],
        url=os.environ["OPENAI_BASE_URL"],
        token_counter=Characters(),
    )
    return ChatAgent(prompt, model=model, **options)


async def main() -> None:
    team = Workforce(
        "A team that acts in a world.",
        coordinator_agent=agent("planner", "You coordinate."),
        task_agent=agent("planner", "You plan."),
        new_worker_agent=agent("worker", world.SYSTEM, tools=[world.act]),
        failure_handling_config={"enabled_strategies": [], "max_retries": 1},
    )
    worker = agent("worker", world.SYSTEM, tools=[world.act])
    team.add_single_agent_worker("Acts in the world.", worker=worker)
    await team.process_task_async(Task(content=world.TASK, id="0"))


asyncio.run(main())
