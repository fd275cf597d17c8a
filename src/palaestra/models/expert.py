"""The expert model: says what the world's own reference solution would do next.

It speaks as the learner will have to: the same agent puts the action into words, and the same
renderer turns them into tokens. An episode lived with it is a demonstration as it stands.

With an error rate it is a stand-in for a model of middling skill: of the actions that it knows,
each one is replaced by chance. So an agent's plan, its verdicts and its moves are wrong as often as
stated, and whatever the agent does about errors can be seen to help or not.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, World
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.scripted import certain


class ExpertModel(Model):
    """An expert on every world; each session asks it as `for_world` binds it to its own."""

    name = "expert"

    def __init__(
        self,
        agent: Agent,
        renderer: Renderer | None = None,
        *,
        error: float = 0.0,
        world: World | None = None,
    ) -> None:
        """With `error`, the probability that an action it knows is replaced by a random one."""
        self.agent = agent
        self.renderer = renderer
        self.error = error
        self.world = world
        self._asking = asyncio.Lock()  # a world answers one question at a time

    def for_world(self, world: World) -> ExpertModel:
        return ExpertModel(self.agent, self.renderer, error=self.error, world=world)

    async def generate(self, prompt: Prompt) -> Generation:
        """The agent's answer by the reference actions from the world's present state.

        Raises:
            InputError: the expert is not bound to a world.
            CapabilityMissing: the world declares no oracle.
            EnvironmentFault: the oracle has no answer here, or it should err where the world
                names no action to choose from.
        """
        if self.world is None:
            raise InputError("The expert knows only the world it is in; bind it with `for_world`.")
        started = time.monotonic()
        async with self._asking:
            actions = await self._known(self.world, prompt.seed)
        generation = certain(self.agent.answer(prompt.messages, actions), prompt, self)
        return replace(generation, seconds=time.monotonic() - started)

    async def _known(self, world: World, seed: int) -> list[Action]:
        """The actions from the world's present state; raises EnvironmentFault like `generate`."""
        actions = await world.oracle()
        if not actions:
            raise EnvironmentFault("oracle", "it knows no reference action from the present state")
        return await self._mistaken(world, actions, random.Random(seed)) if self.error else actions

    async def _mistaken(
        self, world: World, actions: list[Action], dice: random.Random
    ) -> list[Action]:
        found = []
        for action in actions:
            seed = dice.getrandbits(32)
            if dice.random() >= self.error:
                found.append(action)
                continue
            try:
                found.append(await world.sample(seed))
            except CapabilityMissing as error:
                reason = "the world names no action to choose from, so the expert cannot err"
                raise EnvironmentFault("sample", reason) from error
        return found
