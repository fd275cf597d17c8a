"""The world in plain JSON, for shell scripts: look at it, and act in it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.session import Session
from palaestra.rollout.gateway.door import Door


class Call(BaseModel):
    """The call of a tool."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arguments: dict[str, Any] = {}


class StepRequest(BaseModel):
    """The body of `world/step`: an action in words, or the call of a tool."""

    model_config = ConfigDict(extra="forbid")

    action: str | None = None
    call: Call | None = None

    @model_validator(mode="after")
    def _one_of_the_two(self) -> StepRequest:
        if (self.action is None) == (self.call is None):
            raise ValueError("give either an action or a call")
        return self


def view(session: Session) -> dict[str, Any]:
    """What an agent may know before it acts."""
    seen = session.steps[-1].transition.observation if session.steps else session.observation
    tools = [
        {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
        for t in session.tools
    ]
    return {
        "task": session.task.id,
        "instructions": session.instructions,
        "observation": seen.text if seen is not None else "",
        "tools": tools,
        "turns": len(session.steps),
        "over": session.over,
    }


async def step(door: Door, request: StepRequest) -> dict[str, Any]:
    """Act; raises Refusal once the episode is over."""
    called = request.call
    if called is None:
        action = Action(request.action or "")
    else:
        call = ToolCall(called.name, called.arguments)
        action = Action(str(call), call)
    transition = await door.act(action)
    seen = {
        "observation": transition.observation.text,
        "valid": transition.valid,
        "over": door.session.over,
    }
    if not door.rewards:
        return seen
    outcome = door.session.outcome
    ended = None if outcome is None else str(outcome)
    return {**seen, "reward": transition.reward, "outcome": ended}
