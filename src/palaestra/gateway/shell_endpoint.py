"""The environment as plain JSON, for shell scripts: observe it, and act in it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from palaestra.core.environment import Action, Observation
from palaestra.core.message import ToolCall
from palaestra.core.session import Session
from palaestra.gateway.mcp_endpoint import seen
from palaestra.gateway.session_endpoint import SessionEndpoint


class Call(BaseModel):
    """A tool call."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arguments: dict[str, Any] = {}


class StepRequest(BaseModel):
    """The body of `world/step`: an action as text, or a tool call."""

    model_config = ConfigDict(extra="forbid")

    action: str | None = None
    call: Call | None = None
    call_id: str | None = None  # of the model's tool call that it executes

    @model_validator(mode="after")
    def _one_of_the_two(self) -> StepRequest:
        if (self.action is None) == (self.call is None):
            raise ValueError("give either an action or a call")
        return self


def view(session: Session) -> dict[str, Any]:
    """Return the task, the instructions, the tools and the current observation."""
    observation = seen(session)
    tools = [
        {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
        for t in session.tools
    ]
    return {
        "task": session.task.id,
        "instructions": session.instructions,
        **_observed(observation),
        "tools": tools,
        "turns": len(session.steps),
        "over": session.over,
    }


async def step(endpoint: SessionEndpoint, request: StepRequest) -> dict[str, Any]:
    """Act in the environment; raises HTTPError if the episode is over."""
    called = request.call
    if called is None:
        action = Action(request.action or "")
    else:
        action = Action.of(ToolCall(called.name, called.arguments))
    transition = await endpoint.act(action, request.call_id)
    shown = {
        **_observed(transition.observation),
        "valid": transition.valid,
        "over": endpoint.session.over,
    }
    if not endpoint.rewards:
        return shown
    outcome = endpoint.session.outcome
    ended = None if outcome is None else str(outcome)
    return {**shown, "reward": transition.reward, "outcome": ended}


def _observed(observation: Observation) -> dict[str, Any]:
    """Return an observation as JSON; images, if any, as `data:` URLs."""
    images = [image.url for image in observation.images]
    return {"observation": observation.text, **({"images": images} if images else {})}
