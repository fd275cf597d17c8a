"""The random model: does what its world draws by chance.

The baseline that any learner must beat. Equal prompt seeds give equal choices.
"""

from __future__ import annotations

import time
from dataclasses import replace

from palaestra.core.agent import Agent
from palaestra.core.environment import World
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.scripted import certain


class RandomModel(Model):
    """Chance in every world; each session asks it as `for_world` binds it to its own."""

    name = "random"

    def __init__(
        self, agent: Agent, renderer: Renderer | None = None, *, world: World | None = None
    ) -> None:
        self.agent, self.renderer, self.world = agent, renderer, world

    def for_world(self, world: World) -> RandomModel:
        return RandomModel(self.agent, self.renderer, world=world)

    async def generate(self, prompt: Prompt) -> Generation:
        """One of the world's actions (`Environment.sample_action`), in the agent's words.

        Raises:
            InputError: the model is not bound to a world.
            EnvironmentFault: the world names no action.
        """
        if self.world is None:
            raise InputError("Chance needs the world it acts in; bind it with `for_world`.")
        started = time.monotonic()
        try:
            action = await self.world.sample(prompt.seed)
        except CapabilityMissing as error:
            raise EnvironmentFault("sample", "the world names no action to choose from") from error
        generation = certain(self.agent.phrase(action), prompt, self)
        return replace(generation, seconds=time.monotonic() - started)
