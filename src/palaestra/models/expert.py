"""The expert model: says what the world's own reference solution would do next.

It speaks as the learner will have to: the same agent puts the action into words, and the same
renderer turns them into tokens. An episode lived with it is a demonstration as it stands.
"""

from __future__ import annotations

import time
from dataclasses import replace

from palaestra.core.agent import Agent
from palaestra.core.environment import World
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.scripted import certain


class ExpertModel(Model):
    """An expert on every world; each session asks it as `for_world` binds it to its own."""

    name = "expert"

    def __init__(
        self, agent: Agent, renderer: Renderer | None = None, *, world: World | None = None
    ) -> None:
        self.agent = agent
        self.renderer = renderer
        self.world = world

    def for_world(self, world: World) -> ExpertModel:
        return ExpertModel(self.agent, self.renderer, world=world)

    async def generate(self, prompt: Prompt) -> Generation:
        """The first reference action from the world's present state, in the agent's words.

        Raises:
            InputError: the expert is not bound to a world.
            CapabilityMissing: the world declares no oracle.
            EnvironmentFault: the oracle has no answer here.
        """
        if self.world is None:
            raise InputError("The expert knows only the world it is in; bind it with `for_world`.")
        started = time.monotonic()
        actions = await self.world.oracle()
        if not actions:
            raise EnvironmentFault("oracle", "it knows no reference action from the present state")
        generation = certain(self.agent.phrase(actions[0]), prompt, self)
        return replace(generation, seconds=time.monotonic() - started)
