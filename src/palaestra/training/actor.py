"""External actors: another process or machine makes the rollouts, with new weights after each step.

The learner's process writes the policy as a checkpoint into the run folder, and the server
loads it from there (see `models.remote.external_actor`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import torch

from palaestra.core.errors import UnknownName
from palaestra.core.model import Model
from palaestra.models.local.engine import OnUpdate
from palaestra.models.local.serving_process import ServingProcess, check_packages
from palaestra.models.remote.endpoint import Endpoint
from palaestra.models.remote.external_actor import ExternalActor, parse_external_actor
from palaestra.rollout.processes import peak_bytes
from palaestra.runtime.machine import torch_threads
from palaestra.training.policy_building import export, slots_of
from palaestra.training.run_context import RunContext

PROCESS = "process"
FOLDER = "acting"  # in the run folder: checkpoints for the server


def check_actor(name: str | None) -> None:
    """Raise InputError if `rl.actor` names no actor, or the actor's packages are missing."""
    if name == PROCESS:
        check_packages()
    elif name is not None:
        if not name.startswith("served:"):
            raise UnknownName("actor", name, (PROCESS, "served:MODEL@URL"))
        parse_external_actor(name)


class Actor:
    """The model that acts in a training run's rollouts; an asynchronous context manager."""

    def __init__(self, context: RunContext) -> None:
        """Prepare the actor; `async with` starts it."""
        self._context = context
        self._root = (context.run.path / FOLDER).resolve()
        self._stack = AsyncExitStack()
        self._process: ServingProcess | None = None
        self._external: ExternalActor | None = None

    @property
    def model(self) -> Model:
        """The model that replies: the learner's own, unless the recipe names an external actor."""
        return self._external or self._context.policy

    @property
    def is_external(self) -> bool:
        """Whether another process acts, and the learner's process only learns."""
        return self._external is not None

    async def __aenter__(self) -> Self:
        """Start the actor with the current weights.

        Raises:
            InfrastructureFault: the actor cannot be reached, or refuses the weights.
        """
        if self._context.recipe.rl.actor is not None:
            try:
                await self._begin(self._context.recipe.rl.actor)
            except BaseException:
                await self._stack.aclose()
                raise
        return self

    async def _begin(self, name: str) -> None:
        context, policy = self._context, self._context.policy
        shutil.rmtree(self._root, ignore_errors=True)
        folder = await self._write()
        loading: Callable[[Path, int], None] | None = None
        if name == PROCESS:
            process = self._process = await self._start(folder)
            model, loading = policy.name, process.begin_with
            endpoint = Endpoint(
                "another process", "http://actor", socket=process.socket, serving=process.serving
            )
        else:
            model, endpoint = parse_external_actor(name)
        self._external = ExternalActor(
            policy.name,
            policy.renderer,
            endpoint,
            model=model,
            version=policy.version,
            drain=policy.engine.on_update is OnUpdate.DRAIN,
            loading=loading,
        )
        self._stack.push_async_callback(self._external.close)
        await self._external.load(folder, policy.version)
        context.reporter.say(f"{endpoint.name} makes the rollouts from now on")

    async def _start(self, folder: Path) -> ServingProcess:
        """Start another process with half of the cores; this process keeps the rest."""
        recipe, policy = self._context.recipe, self._context.policy
        actor_threads = max(1, torch_threads() // 2)
        self._stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(max(1, torch_threads() - actor_threads))
        options = {
            "slots": slots_of(recipe),
            "context": recipe.model.context,
            "precision": "bf16" if policy.network.dtype == torch.bfloat16 else "fp32",
            "device": policy.network.device.type,
            "backend": recipe.model.backend,
            "schedule": recipe.model.schedule,
            "on-update": policy.engine.on_update.value,
        }
        arguments = [f"--{key}={value}" for key, value in options.items()]
        process = ServingProcess(folder, arguments, threads=actor_threads, version=policy.version)
        return await self._stack.enter_async_context(process)

    async def __aexit__(self, *error: object) -> None:
        self._count_memory()
        await self._stack.aclose()
        shutil.rmtree(self._root, ignore_errors=True)
        self._external = None

    async def publish(self) -> None:
        """Send the current weights to the actor."""
        if self._external is None or self._external.version == self._context.policy.version:
            return
        folder = await self._write()
        await self._external.load(folder, self._context.policy.version)
        self._count_memory()
        for old in self._root.iterdir():
            if old != folder:
                shutil.rmtree(old)

    def _count_memory(self) -> None:
        if self._process is not None and self._process.pid is not None:
            peak = peak_bytes(self._process.pid)
            self._context.actor_bytes = max(self._context.actor_bytes, peak)

    async def _write(self) -> Path:
        """Write the current policy as a checkpoint that a server can load."""
        policy = self._context.policy
        folder = self._root / str(policy.version)
        await asyncio.to_thread(export, policy, self._context.recipe, folder)
        return folder
