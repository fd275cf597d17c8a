"""Subtasks with a tree search each: what is planned, tried, valued and taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from palaestra.agents.registry import make_agent
from palaestra.agents.search import webpilot
from palaestra.agents.search.effect_and_potential import NOW, VALUE
from palaestra.agents.search.tree import Node, back_up_best
from palaestra.agents.search.webpilot import TRIED
from palaestra.core.budget import Budget
from palaestra.core.environment import Signals
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.agents.fork import Fork, Wavering

PLANNED = "1. the first step\n2. the rest"


def roll_out(
    agent: str,
    judge: Callable[[Sequence[Message]], str],
    acting: Model | None = None,
    planner: Callable[[Sequence[Message]], str] = lambda messages: PLANNED,
    budget: Budget = Budget(turns=8),
) -> Episode:
    models: Mapping[str, Model] = {
        "agent": acting or Wavering(),
        "planner": ScriptedModel(planner),
        "judge": ScriptedModel(judge),
    }
    task, world = Task("test/0", "fork", 0), LocalEnvironment(Fork())
    session = Session(Key("test", 0), task, world, make_agent(agent), models, budget=budget)
    return asyncio.run(session.run())


def prompts(episode: Episode, role: str) -> list[str]:
    return [call.messages[-1].text for call in episode.calls if call.role == role]


def cautious(messages: Sequence[Message]) -> str:
    alley = "alley" in messages[-1].text
    return "Effect: 0\nPotential: 0" if alley else "Effect: 8\nPotential: 6"


def test_each_subtask_is_searched_for_and_the_way_is_found() -> None:
    def judge(messages: Sequence[Message]) -> str:
        first = messages[-1].text.startswith(f"{NOW.strip()} the first step")
        moved = messages[-1].text.count("> right") == 1
        return "Effect: 9\nPotential: 10" if first and moved else cautious(messages)

    episode = roll_out("webpilot?iterations=24", judge)
    assert episode.outcome.solved
    assert {step.action.text for step in episode.steps} == {"right"}
    asked = [text.partition(NOW)[2].partition("\n")[0] for text in prompts(episode, "agent")]
    assert list(dict.fromkeys(asked)) == ["the first step", "the rest"]
    assert len(prompts(episode, "planner")) == 1
    assert episode.usage.tried > len(episode.steps)


def test_after_a_subtask_that_was_not_completed_the_planner_reflects() -> None:
    episode = roll_out("webpilot?iterations=2&depth=1", cautious)
    first, second, *_ = prompts(episode, "planner")
    assert first.endswith(webpilot.PLAN)
    assert "'the first step' was not completed" in second and second.endswith(webpilot.AGAIN)
    assert f"> {episode.steps[0].action.text}" in second


def test_a_prompt_says_what_was_tried_in_the_same_state() -> None:
    said = ScriptedModel(lambda messages: "left" if TRIED not in messages[-1].text else "right")
    episode = roll_out("webpilot?iterations=4&depth=1", cautious, said)
    told = [text for text in prompts(episode, "agent") if TRIED in text]
    assert told[0].endswith("left (0.0)")
    assert episode.steps[0].action.text == "right"


@pytest.mark.parametrize(("weight", "taken"), [(0.0, "left"), (1.0, "right")])
def test_the_effect_weighs_as_much_as_is_asked_for(weight: float, taken: str) -> None:
    def judge(messages: Sequence[Message]) -> str:
        alley = messages[-1].text.count("alley")
        return f"Effect: {0 if alley else 9}\nPotential: {9 if alley else 0}"

    episode = roll_out(f"webpilot?iterations=6&depth=1&effect={weight}", judge)
    assert episode.steps[0].action.text == taken


def test_without_a_plan_the_whole_task_is_searched_for() -> None:
    episode = roll_out("webpilot?plan=false&iterations=24", cautious)
    assert episode.outcome.solved
    assert not prompts(episode, "planner")
    assert all(text.startswith(f"{NOW.strip()} {webpilot.WHOLE}") for text in judged(episode))


def judged(episode: Episode) -> list[str]:
    return [c.messages[-1].text for c in episode.calls if c.messages[0].text == VALUE]


def test_when_the_trials_are_used_up_the_agent_goes_on_without_them() -> None:
    episode = roll_out("webpilot?iterations=24", cautious, budget=Budget(turns=8, tried=3))
    assert episode.outcome.scored and episode.usage.tried == 3
    assert len(episode.steps) > 0


def test_a_state_that_was_known_is_worth_nothing_to_its_parents() -> None:
    root = Node([], Signals())
    for score, closed, worth in ((0.9, True, 0.0), (0.4, False, 0.4), (0.2, False, 0.4)):
        child = Node([], Signals(), parent=root, score=score, closed=closed)
        back_up_best(child)
        assert root.worth == worth
    assert root.visits == 3


def test_an_expert_that_errs_plans_searches_and_judges_on_pages() -> None:
    environment, agent = registry.make("web/easy"), make_agent("webpilot?iterations=12")
    task = registry.tasks("web/easy").take(Split.TEST, 1)[0]
    world = LocalEnvironment(environment)
    models = {"agent": ExpertModel(agent, error=0.2, environment=world)}
    session = Session(Key("test", 0), task, world, agent, models, budget=Budget(turns=24))
    episode = asyncio.run(session.run())
    assert episode.outcome.solved
    assert prompts(episode, "planner") and judged(episode)
