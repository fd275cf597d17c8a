"""Acting elsewhere: rollouts by another process or machine, which gets the weights after each step.

The learner's process writes the policy as a checkpoint into the run folder, and the server
loads it from there (see `models.served`).
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
from palaestra.experiment.machine import torch_threads
from palaestra.experiment.policy import export, slots_of
from palaestra.experiment.setting import Setting
from palaestra.models.endpoint import Endpoint
from palaestra.models.engine import OnUpdate
from palaestra.models.served import ServedModel, parse_served
from palaestra.models.serving_process import ServingProcess, check_packages
from palaestra.rollout.processes import peak_bytes

PROCESS = "process"
FOLDER = "acting"  # of the run folder, where the checkpoints for the server lie


def check_actor(name: str | None) -> None:
    """Raises InputError if no actor can be meant by `rl.actor`, or its packages are missing."""
    if name == PROCESS:
        check_packages()
    elif name is not None:
        if not name.startswith("served:"):
            raise UnknownName("actor", name, (PROCESS, "served:MODEL@URL"))
        parse_served(name)


class Actor:
    """Who acts in the rollouts of a run that learns; an asynchronous context manager."""

    def __init__(self, setting: Setting) -> None:
        """Nothing is started yet."""
        self._setting = setting
        self._root = (setting.run.path / FOLDER).resolve()
        self._held = AsyncExitStack()
        self._process: ServingProcess | None = None
        self._served: ServedModel | None = None

    @property
    def model(self) -> Model:
        """Answers the sessions: the learner's own model, unless the recipe names another actor."""
        return self._served or self._setting.policy

    @property
    def elsewhere(self) -> bool:
        """Whether the learner's process has only to learn."""
        return self._served is not None

    async def __aenter__(self) -> Self:
        """Bring the actor up, with the present weights.

        Raises:
            InfrastructureFault: it cannot be reached, or does not take them.
        """
        if self._setting.recipe.rl.actor is not None:
            try:
                await self._begin(self._setting.recipe.rl.actor)
            except BaseException:
                await self._held.aclose()
                raise
        return self

    async def _begin(self, name: str) -> None:
        setting, policy = self._setting, self._setting.policy
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
            model, endpoint = parse_served(name)
        self._served = ServedModel(
            policy.name,
            policy.renderer,
            endpoint,
            model=model,
            version=policy.version,
            drain=policy.engine.on_update is OnUpdate.DRAIN,
            loading=loading,
        )
        self._held.push_async_callback(self._served.close)
        await self._served.load(folder, policy.version)
        setting.reporter.say(f"{endpoint.name} makes the rollouts from here on")

    async def _start(self, folder: Path) -> ServingProcess:
        """Another process with half of the cores; this one keeps the others."""
        recipe, policy = self._setting.recipe, self._setting.policy
        theirs = max(1, torch_threads() // 2)
        self._held.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(max(1, torch_threads() - theirs))
        options = {
            "slots": slots_of(recipe),
            "context": recipe.model.context,
            "precision": "bf16" if policy.network.dtype == torch.bfloat16 else "fp32",
            "device": policy.network.device.type,
            "schedule": recipe.model.schedule,
            "on-update": policy.engine.on_update.value,
        }
        said = [f"--{key}={value}" for key, value in options.items()]
        process = ServingProcess(folder, said, threads=theirs, version=policy.version)
        return await self._held.enter_async_context(process)

    async def __aexit__(self, *error: object) -> None:
        self._count_memory()
        await self._held.aclose()
        shutil.rmtree(self._root, ignore_errors=True)
        self._served = None

    async def publish(self) -> None:
        """Let the actor act with the weights as they are now."""
        if self._served is None or self._served.version == self._setting.policy.version:
            return
        folder = await self._write()
        await self._served.load(folder, self._setting.policy.version)
        self._count_memory()
        for old in self._root.iterdir():
            if old != folder:
                shutil.rmtree(old)

    def _count_memory(self) -> None:
        if self._process is not None and self._process.pid is not None:
            peak = peak_bytes(self._process.pid)
            self._setting.actor_bytes = max(self._setting.actor_bytes, peak)

    async def _write(self) -> Path:
        """The policy as it is now, as a checkpoint that a server can load."""
        policy = self._setting.policy
        folder = self._root / str(policy.version)
        await asyncio.to_thread(export, policy, self._setting.recipe, folder)
        return folder
