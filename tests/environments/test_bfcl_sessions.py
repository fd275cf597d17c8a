"""Tools that BFCL adds in a later turn reach agents in real sessions, and none knows them before.

In `multi_turn_miss_func`, a function that the user needs is held back and comes in a later turn.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

import pytest

pytest.importorskip("bfcl_eval")
pytest.importorskip("mpmath")

from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import World
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments.apps.bfcl import Bfcl
from palaestra.models.registry import load_model
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.workers import WorkerPool
from palaestra.rollout.worlds import LocalWorld

ID = "bfcl/multi_turn_miss_func"
TASKS = Bfcl.tasks(ID).take(Split.TEST, 200)
SORT = TASKS[0]  # in its fourth turn, `sort` is added
ADDED = "I have updated some more functions you can choose from."  # the user's words then
TOLD = re.compile(r'\bsort\(file_name: string\)|"name": "sort"')
AGENTS = ["direct", "react", "tools", "code?sandbox=unsafe", "toolbox", "beam", "sliding", "occam"]


class Overheard(Model):
    """A model whose prompts and replies are kept."""

    name = "overheard"

    def __init__(self, model: Model) -> None:
        self.model, self.renderer = model, model.renderer
        self.said: list[tuple[Sequence[Message], str]] = []

    async def generate(self, prompt: Prompt) -> Generation:
        generation = await self.model.generate(prompt)
        self.said.append((tuple(prompt.messages), generation.text))
        return generation


def expert(agent: Agent, world: World) -> Overheard:
    model = load_model("expert", agent, slots=1, context=1, progress=lambda _: None)
    return Overheard(model.for_world(world))


def lived(agent: Agent, world: World, task: Task) -> tuple[Episode, Overheard]:
    model = expert(agent, world)
    roles = dict.fromkeys(("agent", *agent.roles), model)
    budget = Budget(turns=40, tried=1000)
    session = Session(Key("test", 0), task, world, agent, roles, budget=budget)
    return asyncio.run(session.live()), model


def text(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages if message.role != "assistant")


@pytest.mark.parametrize("name", AGENTS)
def test_a_tool_that_is_added_is_told_before_it_is_used_and_never_sooner(name: str) -> None:
    episode, model = lived(make_agent(name), LocalWorld(Bfcl("multi_turn_miss_func")), SORT)
    assert episode.outcome == Outcome.success()
    first = next(n for n, (_, reply) in enumerate(model.said) if "sort" in reply)
    assert TOLD.search(text(model.said[first][0]))
    added = next(n for n, (told, _) in enumerate(model.said) if ADDED in text(told))
    assert not any(TOLD.search(text(told)) for told, _ in model.said[:added])


def test_an_agent_that_calls_tools_has_their_schemas_renewed_once() -> None:
    world = LocalWorld(Bfcl("multi_turn_miss_func"))
    _, model = lived(make_agent("tools"), world, SORT)
    offers = [
        [json.loads(line)["function"]["name"] for line in listed.strip().splitlines()]
        for listed in re.findall(r"<tools>(.*?)</tools>", text(model.said[-1][0]), re.DOTALL)
    ]
    assert len(offers) == 2 and "sort" not in offers[0]
    assert offers[1] == [*offers[0], "sort"] == [tool.name for tool in world.tools]


def test_a_world_in_a_worker_process_tells_its_added_tools() -> None:
    async def run() -> tuple[list[str], list[str]]:
        async with WorkerPool(1) as pool:
            world = await pool.world(ID)
            agent = make_agent("tools")
            session = Session(Key("test", 0), SORT, world, agent, {"agent": expert(agent, world)})
            episode = await session.live()
            assert episode.outcome == Outcome.success()
            seen = [tool.name for tool in world.tools]
            await world.reset(SORT)
            return seen, [tool.name for tool in world.tools]

    after, before = asyncio.run(run())
    assert after == [*before, "sort"]


def solved(model: str, agent: str, tasks: Sequence[Task]) -> int:
    """How many of the tasks an agent with a reference model solves, by the package's checker."""

    async def world(id: str) -> World:
        return LocalWorld(Bfcl("multi_turn_miss_func"))

    who = make_agent(agent)
    models = {"agent": load_model(model, who, slots=1, context=1, progress=lambda _: None)}
    rollout = Rollout(who, world, models, budget=Budget(turns=40), concurrency=4)
    jobs = [Job(Key("test", number), task) for number, task in enumerate(tasks)]
    episodes = asyncio.run(rollout.run(jobs))
    assert all(episode.outcome.scored for episode in episodes)
    return sum(episode.outcome.solved for episode in episodes)


@pytest.mark.parametrize("agent", ["direct", "tools"])
def test_the_oracle_solves_what_agents_of_chance_and_silence_do_not(agent: str) -> None:
    tasks = TASKS[::20]
    assert solved("expert", agent, tasks) == 10
    assert solved("random", agent, tasks) == solved("null", agent, tasks) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("model", "score"), [("expert", 200), ("random", 0), ("null", 0)])
def test_every_task_is_solved_by_the_oracle_and_by_no_other_reference(
    model: str, score: int
) -> None:
    assert solved(model, "tools", TASKS) == score
