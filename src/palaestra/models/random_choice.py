"""The random model: chooses uniformly among the actions that its world names.

The baseline that any learner must beat. It asks the world for its admissible actions;
where the world declares none, it takes the words that the instructions list after a
colon ("one action: left, right."). Equal prompt seeds give equal choices.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import replace

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Capability, World
from palaestra.core.errors import EnvironmentFault, InputError
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
        """One of the world's actions, in the agent's words.

        Raises:
            InputError: the model is not bound to a world.
            EnvironmentFault: the world names no action.
        """
        if self.world is None:
            raise InputError("Chance needs the world it acts in; bind it with `for_world`.")
        started = time.monotonic()
        words = await _words(self.world)
        if not words:
            raise EnvironmentFault("admissible", "the world names no action to choose from")
        chosen = random.Random(prompt.seed).choice(words)
        generation = certain(self.agent.phrase(Action(chosen)), prompt, self)
        return replace(generation, seconds=time.monotonic() - started)


def stated_actions(instructions: str) -> list[str]:
    """The words of the last list "…: a, b, c." in the instructions; empty without one."""
    lists = [found for found in re.findall(r":\s+([^:.\n]+)", instructions) if "," in found]
    if not lists:
        return []
    words = (re.sub(r"^(and|or)\s+", "", part.strip()) for part in lists[-1].split(","))
    return [word for word in words if word]


async def _words(world: World) -> list[str]:
    if Capability.ADMISSIBLE in world.capabilities:
        return await world.admissible()
    return stated_actions(world.instructions)
