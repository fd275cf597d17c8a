"""Who tells pictures to a model, and who must not be given any."""

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
from palaestra.models.chatml import ChatMLRenderer
from palaestra.models.scripted import ScriptedModel
from palaestra.models.weights import prepare
from palaestra.rollout.worlds import LocalWorld

ID = "babyai/GoToLocalS5N2?observation=image"
LEFT = "Thought: look around.\nAction: left"


def lived(agent: str, model: Model) -> Episode:
    task = registry.tasks(ID).task(Split.TEST, 0)
    world, made = LocalWorld(registry.make(ID)), make_agent(agent)
    session = Session(Key("p", 0), task, world, made, {"agent": model}, budget=Budget(turns=3))
    return asyncio.run(session.live())


@pytest.mark.parametrize("agent", ["direct", "react", "direct?history=1"])
def test_every_picture_that_was_seen_is_told_where_it_was_seen(agent: str) -> None:
    asked: list[Sequence[Message]] = []

    def answer(messages: Sequence[Message]) -> str:
        asked.append(list(messages))
        return LEFT if agent == "react" else "left"

    episode = lived(agent, ScriptedModel(answer))
    assert episode.observation is not None
    seen = [episode.observation, *(step.transition.observation for step in episode.steps)]
    assert len({observation.image for observation in seen}) > 1
    last = [message for message in asked[-1] if message.role == "user"]
    told = [image for message in last for image in message.images]
    assert told == [observation.image for observation in seen[:3]]  # the last one came too late


def test_an_agent_or_a_model_without_eyes_is_refused() -> None:
    with pytest.raises(InputError, match="the agent 'refine' does not tell them"):
        lived("refine", ScriptedModel(["left"] * 9))
    renderer = ChatMLRenderer.from_folder(prepare("smollm2-135m", print))
    with pytest.raises(InputError, match="reads words only"):
        lived("direct", ScriptedModel(["left"] * 9, renderer=renderer))
