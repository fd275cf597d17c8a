"""Learners in processes of their own: ranks that learn together."""

from __future__ import annotations

import multiprocessing as mp
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess

import torch

from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.shards import Sharding
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
    """What each rank makes the same learner from."""

    dtype: torch.dtype = torch.float64
    lora: bool = False
    critic: Critic | None = None
    reference: Reference | None = None
    micro_tokens: int = 48
    clip_norm: float = 1e9
    shard: bool = False  # where there are ranks
    ordered: bool = False
    broken: bool = False  # a description that no rank can use


def made(described: object, ranks: Ranks | None = None) -> Learner:
    """The learner of a rank; without ranks, one that learns alone."""
    assert isinstance(described, Described)
    if described.broken:
        raise ValueError("no such model")
    network = tiny().to(described.dtype)
    if described.lora:
        add_lora(network, 4, 3)
        with torch.no_grad():  # with second factors of zero, the first ones have no gradient
            for name, parameter in network.named_parameters():
                if "lora_" in name:
                    generator = torch.Generator().manual_seed(len(name))
                    parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    learner = Learner(
        resident(network),
        adapters(network) if described.lora else everything(network),
        Optimisation(1e-3, clip_norm=described.clip_norm),
        critic=described.critic,
        reference=described.reference,
        sharding=Sharding(ranks, described.ordered) if ranks and described.shard else None,
    )
    learner.budget.tokens = described.micro_tokens
    return learner


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def follow(rank: int, world: int, port: int, patience: float) -> None:
    torch.set_num_threads(1)
    ranks = join(rank, world, f"127.0.0.1:{port}", patience=patience)
    os._exit(serve(ranks, partial(made, ranks=ranks)))


def started(world: int, patience: float = 30.0) -> tuple[Ranks, list[BaseProcess]]:
    """Rank 0, and the processes of the others."""
    port = free_port()
    processes: list[BaseProcess] = []
    for rank in range(1, world):
        process = SPAWN.Process(target=follow, args=(rank, world, port, patience), daemon=True)
        process.start()
        processes.append(process)
    return join(0, world, f"127.0.0.1:{port}", patience=patience), processes


def ended(ranks: Ranks, processes: list[BaseProcess], code: int = 0) -> list[int | None]:
    """End all ranks; return the exit codes of the others, None of one that had to be killed."""
    ranks.end(code)
    for process in processes:
        process.join(20)
    found = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return found


@contextmanager
def others(world: int) -> Iterator[Ranks]:
    """Rank 0 of so many; all have one thread, since sums over threads have other bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ranks, processes = started(world)
    try:
        yield ranks
    finally:
        torch.set_num_threads(threads)
        assert ended(ranks, processes) == [0] * (world - 1)


def leading(ranks: Ranks, described: Described, *, ordered: bool = False) -> Learner:
    described = replace(described, ordered=ordered)
    learner = made(described, ranks)
    learner.lead(Leader(ranks, described, ordered=ordered))
    return learner
