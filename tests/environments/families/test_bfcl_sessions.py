"""Tools that BFCL adds in a later turn reach agents in real sessions, and not before that turn.

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
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments.families.bfcl.environment import Bfcl
from palaestra.models.registry import load_model
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.rollout.worker_pool import WorkerPool

ID = "bfcl/multi_turn_miss_func"
TASKS = Bfcl.tasks(ID).take(Split.TEST, 200)
SORT = TASKS[0]  # in its fourth turn, `sort` is added
ADDED = "I have updated some more functions you can choose from."  # the user's message then
SHOWN = re.compile(r'\bsort\(file_name: string\)|"name": "sort"')
AGENTS = ["direct", "react", "tools", "code?sandbox=unsafe", "toolbox", "beam", "sliding", "occam"]


class Overheard(Model):
    """A model that records its prompts and replies."""

    name = "overheard"

    def __init__(self, model: Model) -> None:
        self.model, self.renderer = model, model.renderer
        self.replies: list[tuple[Sequence[Message], str]] = []

    async def generate(self, prompt: Prompt) -> Generation:
        generation = await self.model.generate(prompt)
        self.replies.append((tuple(prompt.messages), generation.text))
        return generation


def expert(agent: Agent, world: AsyncEnvironment) -> Overheard:
    model = load_model("expert", agent, slots=1, context=1, progress=lambda _: None)
    return Overheard(model.for_environment(world))


def run_episode(agent: Agent, world: AsyncEnvironment, task: Task) -> tuple[Episode, Overheard]:
    model = expert(agent, world)
    roles = dict.fromkeys(("agent", *agent.roles), model)
    budget = Budget(turns=40, tried=1000)
    session = Session(Key("test", 0), task, world, agent, roles, budget=budget)
    return asyncio.run(session.run()), model


def text(messages: Sequence[Message]) -> str:
    return "\n".join(message.text for message in messages if message.role != "assistant")


@pytest.mark.parametrize("name", AGENTS)
def test_a_tool_that_is_added_is_reported_before_it_is_used_and_never_sooner(name: str) -> None:
    episode, model = run_episode(
        make_agent(name), LocalEnvironment(Bfcl("multi_turn_miss_func")), SORT
    )
    assert episode.outcome == Outcome.success()
    first = next(n for n, (_, reply) in enumerate(model.replies) if "sort" in reply)
    assert SHOWN.search(text(model.replies[first][0]))
    added = next(n for n, (shown, _) in enumerate(model.replies) if ADDED in text(shown))
    assert not any(SHOWN.search(text(shown)) for shown, _ in model.replies[:added])


def test_an_agent_that_calls_tools_has_their_schemas_renewed_once() -> None:
    world = LocalEnvironment(Bfcl("multi_turn_miss_func"))
    _, model = run_episode(make_agent("tools"), world, SORT)
    offers = [
        [json.loads(line)["function"]["name"] for line in listed.strip().splitlines()]
        for listed in re.findall(r"<tools>(.*?)</tools>", text(model.replies[-1][0]), re.DOTALL)
    ]
    assert len(offers) == 2 and "sort" not in offers[0]
    assert offers[1] == [*offers[0], "sort"] == [tool.name for tool in world.tools]


def test_a_world_in_a_worker_process_tells_its_added_tools() -> None:
    async def run() -> tuple[list[str], list[str]]:
        async with WorkerPool(1) as pool:
            world = await pool.make(ID)
            agent = make_agent("tools")
            session = Session(Key("test", 0), SORT, world, agent, {"agent": expert(agent, world)})
            episode = await session.run()
            assert episode.outcome == Outcome.success()
            seen = [tool.name for tool in world.tools]
            await world.reset(SORT)
            return seen, [tool.name for tool in world.tools]

    after, before = asyncio.run(run())
    assert after == [*before, "sort"]


def solved(model: str, agent: str, tasks: Sequence[Task]) -> int:
    """Count the tasks that an agent with a reference model solves, by the package's checker."""

    async def world(id: str) -> AsyncEnvironment:
        return LocalEnvironment(Bfcl("multi_turn_miss_func"))

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
