"""Agents that pass images to a model, and agents that refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.models.local.weights import prepare
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

ID = "babyai/GoToLocalS5N2?observation=image"
LEFT = "Thought: look around.\nAction: left"


def roll_out(agent: str, model: Model) -> Episode:
    task = registry.tasks(ID).task(Split.TEST, 0)
    world, made = LocalEnvironment(registry.make(ID)), make_agent(agent)
    session = Session(Key("p", 0), task, world, made, {"agent": model}, budget=Budget(turns=3))
    return asyncio.run(session.run())


@pytest.mark.parametrize("agent", ["direct", "react", "direct?history=1"])
def test_every_image_is_shown_at_its_observation(agent: str) -> None:
    asked: list[Sequence[Message]] = []

    def answer(messages: Sequence[Message]) -> str:
        asked.append(list(messages))
        return LEFT if agent == "react" else "left"

    episode = roll_out(agent, ScriptedModel(answer))
    assert episode.observation is not None
    seen = [episode.observation, *(step.transition.observation for step in episode.steps)]
    assert len({observation.images for observation in seen}) > 1
    last = [message for message in asked[-1] if message.role == "user"]
    received = [image for message in last for image in message.images]
    shown = [image for observation in seen[:3] for image in observation.images]
    assert received == shown  # the last one came too late


def test_an_agent_or_a_model_without_eyes_is_refused() -> None:
    with pytest.raises(InputError, match="the agent 'refine' does not pass them"):
        roll_out("refine", ScriptedModel(["left"] * 9))
    renderer = ChatMLRenderer.from_folder(prepare("smollm2-135m", print))
    with pytest.raises(InputError, match="reads text only"):
        roll_out("direct", ScriptedModel(["left"] * 9, renderer=renderer))
