"""The random model: samples its actions from the environment.

The baseline that any learner must beat. Equal prompt seeds give equal choices.
"""

from __future__ import annotations

import time
from dataclasses import replace

from palaestra.core.agent import Agent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.scripted.scripted_model import given_generation


class RandomModel(Model):
    """A random policy for every environment; `for_environment` binds it to a session's own."""

    name = "random"
    reads_environment = True

    def __init__(
        self,
        agent: Agent,
        renderer: Renderer | None = None,
        *,
        environment: AsyncEnvironment | None = None,
    ) -> None:
        self.agent, self.renderer, self.environment = agent, renderer, environment
        self.native_tools = renderer is not None and renderer.native_tools

    def for_environment(self, environment: AsyncEnvironment) -> RandomModel:
        return RandomModel(self.agent, self.renderer, environment=environment)

    def for_agent(self, agent: Agent) -> RandomModel:
        return RandomModel(agent, self.renderer, environment=self.environment)

    async def generate(self, prompt: Prompt) -> Generation:
        """Return a random action (`Environment.sample_action`), phrased by the agent.

        Raises:
            InputError: the model is not bound to an environment.
            EnvironmentFault: the environment has no actions to sample from.
        """
        if self.environment is None:
            raise InputError(
                "The random model has no environment to act in; bind it with `for_environment`."
            )
        started = time.monotonic()
        try:
            action = await self.environment.sample(prompt.seed)
        except CapabilityMissing as error:
            raise EnvironmentFault(
                "sample", "the environment has no actions to sample from"
            ) from error
        generation = given_generation(self.agent.phrase(action), prompt, self)
        return replace(generation, seconds=time.monotonic() - started)
