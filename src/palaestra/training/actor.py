"""External actors: other processes or machines make the rollouts, with new weights after each step.

A server loads the policy as a checkpoint that the learner's process writes into the run folder (see
`models.remote.external_actor`); the engines of a cluster get the weights over the network.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, Self

import torch

from palaestra.core.errors import UnknownName
from palaestra.core.model import Model, Renderer
from palaestra.models.local.engine import OnUpdate
from palaestra.models.local.serving_process import ServingProcess, check_packages
from palaestra.models.local.weight_stream import Weights, copy_weights
from palaestra.models.remote.endpoint import Endpoint
from palaestra.models.remote.external_actor import ExternalActor, parse_external_actor
from palaestra.rollout.processes import peak_bytes
from palaestra.runtime.machine import torch_threads
from palaestra.training.policy_building import export, slots_of, whole
from palaestra.training.run_context import RunContext

PROCESS = "process"
FOLDER = "acting"  # in the run folder: checkpoints for the server


class Engines(Protocol):
    """The engines of a cluster; see `cluster.engines`."""

    async def begin(
        self,
        name: str,
        renderer: Renderer,
        folder: Path,
        weights: Weights,
        *,
        options: Mapping[str, Any],
        sessions: int,
        one_by_one: bool,
    ) -> Model: ...
    async def publish(self, weights: Weights) -> None: ...
    async def end(self) -> None: ...


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
        self._routed: Model | None = None  # by the engines of the cluster

    @property
    def model(self) -> Model:
        """The model that replies: the learner's own, unless the recipe names an external actor."""
        return self._routed or self._external or self._context.policy

    @property
    def is_external(self) -> bool:
        """Whether another process acts, and the learner's process only learns."""
        return self.model is not self._context.policy

    async def __aenter__(self) -> Self:
        """Start the actor with the current weights.

        Raises:
            InfrastructureFault: the actor cannot be reached, or refuses the weights.
        """
        name, engines = self._context.recipe.rl.actor, self._context.engines
        if engines is not None or name is not None:
            try:
                if engines is not None:
                    await self._begin_on(engines)
                else:
                    assert name is not None
                    await self._begin(name)
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

    async def _begin_on(self, engines: Engines) -> None:
        """Act on the engines of a cluster."""
        recipe, policy = self._context.recipe, self._context.policy
        shutil.rmtree(self._root, ignore_errors=True)
        folder = await self._write()
        options = self._options()
        self._stack.push_async_callback(engines.end)
        self._routed = await engines.begin(
            policy.name,
            policy.renderer,
            folder,
            await self._copy(),
            options=options,
            sessions=recipe.concurrency,
            one_by_one=recipe.deterministic,
        )
        self._context.reporter.say("the engines make the rollouts from now on")

    def _options(self) -> dict[str, Any]:
        """Return the options of `models.local.server.load_policy` that a server gets as well."""
        recipe, policy = self._context.recipe, self._context.policy
        return {
            "slots": slots_of(recipe),
            "context": recipe.model.context,
            "precision": "bf16" if policy.network.dtype == torch.bfloat16 else "fp32",
            "backend": recipe.model.backend,
            "schedule": recipe.model.schedule,
            "on_update": policy.engine.on_update.value,
        }

    async def _copy(self) -> Weights:
        """Return a copy of the current weights, as an engine needs them."""
        policy, recipe = self._context.policy, self._context.recipe

        def copy() -> Weights:
            return copy_weights(whole(policy.network, recipe).state_dict(), policy.version)

        return await asyncio.to_thread(copy)

    async def _start(self, folder: Path) -> ServingProcess:
        """Start another process with half of the cores; this process keeps the rest."""
        policy = self._context.policy
        actor_threads = max(1, torch_threads() // 2)
        self._stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(max(1, torch_threads() - actor_threads))
        options = self._options() | {"device": policy.network.device.type}
        arguments = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        process = ServingProcess(folder, arguments, threads=actor_threads, version=policy.version)
        return await self._stack.enter_async_context(process)

    async def __aexit__(self, *error: object) -> None:
        self._count_memory()
        await self._stack.aclose()
        shutil.rmtree(self._root, ignore_errors=True)
        self._external = self._routed = None

    async def publish(self) -> None:
        """Send the current weights to the actor."""
        if self._context.engines is not None:
            await self._context.engines.publish(await self._copy())
            return
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
            accounts = self._context.accounts
            accounts.actor_bytes = max(accounts.actor_bytes, peak)

    async def _write(self) -> Path:
        """Write the current policy as a checkpoint that a server can load."""
        policy = self._context.policy
        folder = self._root / str(policy.version)
        await asyncio.to_thread(export, policy, self._context.recipe, folder)
        return folder
