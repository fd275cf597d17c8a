"""Learners in processes of their own, as ranks that learn together."""

from __future__ import annotations

import multiprocessing as mp
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.weight_selection import adapters, everything
from palaestra.learning.critics.value_head import Critic
from palaestra.learning.loop.following import serve
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner, Reference
from palaestra.learning.parallel import Ranks, join
from palaestra.models.local.lora import add_lora
from tests.learning.made import resident, tiny

SPAWN = mp.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Described:
    """From which each rank makes the same learner."""

    dtype: torch.dtype = torch.float64
    lora: bool = False
    critic: Critic | None = None
    reference: Reference | None = None
    micro_tokens: int = 48
    seed: int = field(default=0)


def made(described: Described) -> Learner:
    torch.set_num_threads(1)
    network = tiny().to(described.dtype)
    if described.lora:
        add_lora(network, 4, 3)
        with torch.no_grad():  # the second factors begin at zero: half of the gradients would be
            for name, parameter in network.named_parameters():
                if "lora_" in name:
                    generator = torch.Generator().manual_seed(len(name))
                    parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    learner = Learner(
        resident(network),
        adapters(network) if described.lora else everything(network),
        Optimisation(1e-3, clip_norm=1e9),
        critic=described.critic,
        reference=described.reference,
    )
    learner.budget.tokens = described.micro_tokens
    return learner


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def follow(rank: int, world: int, port: int, patience: float) -> None:
    torch.set_num_threads(1)
    ranks = join(rank, world, f"127.0.0.1:{port}", patience=patience)
    os._exit(serve(ranks, made))


@contextmanager
def others(world: int, *, patience: float = 30.0) -> Iterator[tuple[Ranks, list[Any]]]:
    """Rank 0 of so many, and the processes of the others."""
    port = free_port()
    processes = [
        SPAWN.Process(target=follow, args=(rank, world, port, patience), daemon=True)
        for rank in range(1, world)
    ]
    for process in processes:
        process.start()
    ranks = join(0, world, f"127.0.0.1:{port}", patience=patience)
    try:
        yield ranks, processes
    finally:
        ranks.end(0)
        for process in processes:
            process.join(20)
            if process.is_alive():
                process.kill()


def alone(described: Described, work: Callable[[Learner], Any]) -> Any:
    learner = made(described)
    try:
        return work(learner)
    finally:
        learner.close()


def together(
    ranks: Ranks, described: Described, work: Callable[[Learner], Any], *, ordered: bool = False
) -> Any:
    learner = made(described)
    learner.lead(Leader(ranks, described, ordered=ordered))
    try:
        return work(learner)
    finally:
        learner.close()
