"""Every shipped agent names the reply that proposed each of its actions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from palaestra.agents.registry import AGENTS, make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Task, TaskSet
from palaestra.environments.snapshots import opened, sealed
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment

HERE = Path(__file__).parent
NEEDED = {  # options without which there is none
    "beliefs": "beliefs?partner=robot2",
    "examples": f"examples?rows={HERE}/one_row.jsonl",
    "procedure": f"procedure?file={HERE}/free.toml",
    "recon": f"recon?library={HERE}/no_functions.jsonl",
}
SILENT = {"mcts"}  # asks no model without other players
NAMES = [
    NEEDED.get(name, name)
    for name, target in sorted(AGENTS.items())
    if target.startswith("palaestra.agents.")
    and ".team_tools." not in target
    and name not in SILENT
]  # foreign programs: tests/gateway/test_proposed.py
MORE = ["vote?thoughts=true", "verify?again=2", "refine?rounds=3", "plan?ask=false"]
GO = re.compile(r"go \d{4}")


class Anywhere(Environment, capabilities={"state_key", "snapshot"}):
    """An environment that accepts every action and never ends."""

    instructions = "Say where to go."

    def __init__(self) -> None:
        super().__init__("anywhere")
        self.path = ""

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        self.path = ""
        return Observation("You are at home.")

    def step(self, action: Action) -> Transition:
        self.path += f"{action.text};"
        return Transition(Observation(f"You have gone {self.path.count(';')} times."))

    def state_key(self) -> str:
        return self.path

    def snapshot(self) -> bytes:
        return sealed("anywhere/", "1", self.path.encode())

    def restore(self, snapshot: bytes) -> None:
        self.path = opened(snapshot, "anywhere/", "1").decode()


class Proposing(Model):
    """Proposes a different action each time, in the agent's reply format."""

    name = "proposing"

    def __init__(self, agent: Agent) -> None:
        self.agent, self.asked = agent, 0

    async def generate(self, prompt: Prompt) -> Generation:
        self.asked += 1
        return given_generation(self.agent.phrase(Action(f"go {self.asked:04}")), prompt, self)


class Content(Model):
    """A critic, verifier, judge, planner … that approves everything and proposes nothing."""

    name = "content"

    async def generate(self, prompt: Prompt) -> Generation:
        return given_generation("Fine, no problem: 50.", prompt, self)


def roll_out(name: str, others: Model | None = None) -> Episode:
    agent = make_agent(name)
    models: Mapping[str, Model] = {"agent": Proposing(agent)}
    if others is not None:
        models = {**dict.fromkeys(agent.roles, others), **models}
    task = Task("train/0", "anywhere", 0)
    budget = Budget(turns=5, tried=60)
    world = LocalEnvironment(Anywhere())
    session = Session(Key("proposed", 0), task, world, agent, models, budget=budget)
    return asyncio.run(session.run())


@pytest.mark.parametrize("others", [None, Content()], ids=["all propose", "others agree"])
@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_each_step_is_credited_to_the_reply_that_proposed_it(
    name: str, others: Model | None
) -> None:
    if name == "plan?ask=false" and others is not None:
        pytest.skip("its planner is the one who proposes")
    episode = roll_out(name, others)
    assert len(episode.steps) == 5, episode.outcome
    for step in episode.steps:
        output = GO.search(step.action.text)
        assert output is not None
        (proposer,) = [c.index for c in episode.calls if output[0] in c.reply.text]
        assert step.call == proposer


@pytest.mark.parametrize("others", [None, Content()], ids=["all propose", "others agree"])
@pytest.mark.parametrize("name", [*NAMES, *MORE])
def test_each_step_stands_behind_the_calls_that_were_made_before_it(
    name: str, others: Model | None
) -> None:
    """Each call of the role is recorded, though another reply proposed the action."""
    episode = roll_out(name, others)
    made = [step.calls_before for step in episode.steps]
    assert made == sorted(made)
    assert all(step.call is None or step.call < step.calls_before for step in episode.steps)
    assert made[0] >= 1 and made[-1] <= len(episode.calls)


class Listed(Anywhere, capabilities={"admissible"}):
    """An environment with two listed actions."""

    def admissible(self) -> list[str]:
        return ["east", "west"]


@pytest.mark.parametrize("name", ["mcts?simulations=4", "ltl?again=1"])
def test_what_no_reply_proposed_belongs_to_no_reply(name: str) -> None:
    """A search without a model, and an action taken although no reply was allowed."""
    agent = make_agent(name)
    models = {"agent": Proposing(agent)}
    task, world = Task("train/0", "anywhere", 0), LocalEnvironment(Listed())
    session = Session(Key("t", 0), task, world, agent, models, budget=Budget(turns=3))
    episode = asyncio.run(session.run())
    assert [step.call for step in episode.steps] == [None] * 3
    assert [s.calls_before for s in episode.steps] == ([2, 4, 6] if "ltl" in name else [0, 0, 0])
