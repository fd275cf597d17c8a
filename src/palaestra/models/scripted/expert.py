"""The expert model: replies with the next actions of the environment's reference solution.

It replies as the learner must: the same agent phrases the action, and the same renderer turns it
into tokens. An episode rolled out with it is a demonstration as it stands.

With an error rate it stands in for a model of medium skill: each action that it knows is replaced
by a random one with that probability. So an agent's plans, verdicts and moves are wrong at a known
rate, and the effect of the agent's error handling can be measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.scripted.scripted_model import given_generation


class ExpertModel(Model):
    """An expert on every environment; `for_environment` binds it to a session's own."""

    name = "expert"
    reads_environment = True

    def __init__(
        self,
        agent: Agent,
        renderer: Renderer | None = None,
        *,
        error: float = 0.0,
        environment: AsyncEnvironment | None = None,
    ) -> None:
        """Bind no environment yet; `error` is the probability that an action is random."""
        self.agent = agent
        self.renderer = renderer
        self.native_tools = renderer is not None and renderer.native_tools
        self.error = error
        self.environment = environment
        self._lock = asyncio.Lock()  # an environment answers one query at a time

    def for_environment(self, environment: AsyncEnvironment) -> ExpertModel:
        return ExpertModel(self.agent, self.renderer, error=self.error, environment=environment)

    def for_agent(self, agent: Agent) -> ExpertModel:
        return ExpertModel(agent, self.renderer, error=self.error, environment=self.environment)

    async def generate(self, prompt: Prompt) -> Generation:
        """Return the agent's reply for the reference actions from the environment's current state.

        Raises:
            InputError: the expert is not bound to an environment.
            CapabilityMissing: the environment declares no oracle.
            EnvironmentFault: the oracle has no plan here, or an error was to be made and the
                environment has no actions to sample from.
        """
        if self.environment is None:
            raise InputError(
                "The expert has no environment to act in; bind it with `for_environment`."
            )
        started = time.monotonic()
        async with self._lock:
            actions = await self._oracle_actions(self.environment, prompt.seed)
        generation = given_generation(self.agent.demonstrate(prompt, actions), prompt, self)
        return replace(generation, seconds=time.monotonic() - started)

    async def _oracle_actions(self, environment: AsyncEnvironment, seed: int) -> list[Action]:
        """Return the oracle's actions from the current state; raise like `generate`."""
        actions = await environment.oracle()
        if not actions:
            raise EnvironmentFault("oracle", "it knows no reference action from the present state")
        return (
            await self._with_errors(environment, actions, random.Random(seed))
            if self.error
            else actions
        )

    async def _with_errors(
        self, environment: AsyncEnvironment, actions: list[Action], rng: random.Random
    ) -> list[Action]:
        found = []
        for action in actions:
            seed = rng.getrandbits(32)
            if rng.random() >= self.error:
                found.append(action)
                continue
            try:
                found.append(await environment.sample(seed))
            except CapabilityMissing as error:
                reason = "the environment has no actions to sample from, so the expert cannot err"
                raise EnvironmentFault("sample", reason) from error
        return found
