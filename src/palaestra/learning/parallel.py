"""Ranks: processes, on one machine or many, that learn one policy together.

Rank 0 leads: it has the batch and computes all losses; the other ranks follow (see `loop.dealing`).
Work is dealt out in messages over links of their own (see `links`), whose beats bound every wait.
Large tensors, gradients first of all, go through torch.distributed: gloo on processors, NCCL on
CUDA devices.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store

from palaestra.core.errors import InfrastructureFault, InputError, RankLost
from palaestra.learning.links import BEAT, LONGEST, Failed, Link

PATIENCE = 30.0  # seconds of silence
JOINING = 300.0  # seconds for all ranks to join
BUCKET = 32 << 20  # bytes summed at once
POLL = (5e-5, 5e-3)  # seconds between looks at a transfer: first, and at most


@dataclass(frozen=True, slots=True)
class End:
    """The last message of rank 0: the exit code of all."""

    code: int


class Transfers(Protocol):
    """What is used of torch's process groups."""

    def allreduce(self, tensor: Tensor, /) -> dist.Work:
        """Begin to sum a tensor over all ranks, in place."""

    def broadcast(self, tensor: Tensor, root: int, /) -> dist.Work:
        """Begin to overwrite a tensor with that of one rank."""

    def _reduce_scatter_base(self, into: Tensor, parts: Tensor, /) -> dist.Work:
        """Begin to sum a tensor over all ranks, and to give each rank one part of the sum."""

    def _allgather_base(self, into: Tensor, own: Tensor, /) -> dist.Work:
        """Begin to give the parts of all ranks to each, one after the other."""

    def abort(self) -> None:
        """Break off all transfers."""


class Ranks:
    """One of several processes that learn together; `join` makes it."""

    def __init__(
        self,
        rank: int,
        world: int,
        links: dict[int, Link],
        patience: float,
        store: Store,
    ) -> None:
        self.rank, self.world, self.patience = rank, world, patience
        self.device: torch.device | None = None  # of the tensors that are sent; see `connect`
        self._links, self._store = links, store  # rank 0 hosts the store for as long as it lasts
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="beats", daemon=True)
        self._beating.start()

    # ── messages ─────────────────────────────────────────────────────────────

    @property
    def others(self) -> Sequence[int]:
        """The ranks that this one has a link to: rank 0 has one to each, they have one to it."""
        return list(self._links)

    def send(self, rank: int, message: object, doing: str | None = None) -> None:
        """Send a message; `doing` says what the other does from then on.

        Raises:
            RankLost: the other is lost.
        """
        if doing is not None:
            self._links[rank].doing = doing
        self._links[rank].send(message)

    def arrived(self, rank: int, seconds: float) -> bool:
        """Wait at most so long for a message of that rank; return whether there is one.

        Raises:
            RankLost: the other is lost, or failed.
        """
        return self._links[rank].arrived(seconds)

    def receive(self, rank: int, longest: float | None = LONGEST) -> Any:
        """Return the next message of that rank, which may take so many seconds (None: any time).

        Raises:
            RankLost: the other is lost, or failed, or takes longer.
        """
        return self._links[rank].receive(longest)

    def lost(self, rank: int, how: str) -> RankLost:
        """Return the error that says how that rank was lost."""
        return self._links[rank].lost(how)

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank failed."""
        words = f"{type(error).__name__}: {error}"
        for link in self._links.values():
            try:
                link.send(Failed(words))
            except RankLost:
                continue

    # ── tensors ──────────────────────────────────────────────────────────────

    def connect(self, device: torch.device) -> None:
        """Make `sum` and `broadcast` possible; all ranks call it, with the same kind of device.

        Args:
            device: of the tensors: processors (gloo) or a CUDA device of its own (NCCL).
        """
        if self.device is not None:
            return
        store = PrefixStore("transfers", self._store)
        limit = timedelta(seconds=2 * self.patience)  # beats tell before
        # no default group: a program that uses ranks may have one of its own, or others may follow
        if device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            group: object = dist.ProcessGroupNCCL(store, self.rank, self.world, options)
        else:
            group = dist.ProcessGroupGloo(store, self.rank, self.world, limit)
        self._group = cast(Transfers, group)
        self.device = device

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over all ranks, in place; all must call it with the same shapes and types.

        Raises:
            RankLost: another rank is lost; the tensors are then of no use.
        """
        for bucket in buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            self._finish(self._group.allreduce(flat))
            for tensor, part in zip(
                bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True
            ):
                tensor.copy_(part.view_as(tensor))

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors with those of rank 0; all must call it with the same shapes and types.

        Raises:
            RankLost: another rank is lost; the tensors are then of no use.
        """
        assert self.device is not None  # `connect` was called
        for tensor in tensors:
            sent = tensor.detach().to(self.device).contiguous()
            self._finish(self._group.broadcast(sent, 0))
            if self.rank:
                tensor.copy_(sent)

    def sum_parts(self, parts: Tensor) -> Tensor:
        """Sum a tensor over all ranks, and return this rank's part of the sum.

        Args:
            parts: [ranks, n], a row for each rank; all must call it with the same shape and type.
                It is of no use afterwards.

        Returns:
            [n]

        Raises:
            RankLost: another rank is lost.
        """
        if parts.device.type != "cuda":  # gloo itself sums all parts, and cannot be polled then
            self._finish(self._group.allreduce(parts))
            return parts[self.rank].clone()
        own = torch.empty_like(parts[0])
        self._finish(self._group._reduce_scatter_base(own, parts.view(-1)))
        return own

    def gather_parts(self, own: Tensor) -> Tensor:
        """Return the tensors [n] of all ranks, [ranks, n]; all must call it alike.

        Raises:
            RankLost: another rank is lost.
        """
        parts = own.new_empty(self.world, len(own))
        self._finish(self._group._allgather_base(parts.view(-1), own))
        return parts

    def _finish(self, work: dist.Work) -> None:
        """Wait for a transfer, unless a rank that takes part in it is lost."""
        pause, most = POLL
        while not work.is_completed():
            for link in self._links.values():
                link.check()
            time.sleep(pause)
            pause = min(2 * pause, most)
        try:
            work.wait()
        except RuntimeError as error:
            self._blame(error)

    def _blame(self, error: RuntimeError) -> None:
        """Raise the error of the rank that broke a transfer."""
        until = time.monotonic() + 2 * BEAT  # its end may arrive after the end of the transfer
        while time.monotonic() < until:
            for link in self._links.values():
                link.check()
        raise InfrastructureFault(
            "learner ranks", f"a transfer between ranks broke: {error}"
        ) from error

    # ── the end ──────────────────────────────────────────────────────────────

    def end(self, code: int) -> None:
        """End all ranks: `follow` returns the code in the others. For rank 0."""
        for rank in self._links:
            try:
                self.send(rank, End(code))
            except RankLost:
                continue
        self.close()

    def close(self) -> None:
        """Leave the other ranks, which notice at once; transfers under way are broken off."""
        self._over.set()
        for link in self._links.values():
            link.close()
        self._beating.join()
        if self.device is not None:
            self._group.abort()

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            for link in self._links.values():
                link.beat()


def buckets(tensors: Sequence[Tensor], most: int = BUCKET) -> Iterator[list[Tensor]]:
    """Yield neighbouring tensors of one type together, at most so many bytes, or one alone."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or size + tensor.nbytes > most):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket


@torch.no_grad()
def checksum(tensors: Iterable[Tensor]) -> str:
    """Return a hash of the bits of tensors: equal tensors have equal ones, on any device."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [
        int(tensor.detach().reshape(-1).view(whole[tensor.itemsize]).sum(dtype=torch.int64))
        for tensor in tensors
    ]
    return hashlib.sha256(repr(sums).encode()).hexdigest()[:16]


# ── joining ──────────────────────────────────────────────────────────────────


def join(
    rank: int,
    world: int,
    address: str,
    *,
    hosted: bool = False,
    prefix: str = "",
    patience: float = PATIENCE,
    joining: float = JOINING,
) -> Ranks:
    """Join the ranks that learn together; return when all are there.

    Args:
        rank: of this process, 0 to `world` - 1; rank 0 leads.
        world: number of ranks, at least 2.
        address: HOST:PORT, where rank 0 runs, and all ranks meet.
        hosted: another process, such as torchrun, keeps the meeting point.
        prefix: of what the ranks write there; another one for each try.
        patience: seconds of silence after which a rank is lost.
        joining: seconds until all must have joined.

    Raises:
        InputError: a rank runs other versions, or a rank does not exist.
        InfrastructureFault: not all ranks joined in time.
    """
    if not (world > 1 and 0 <= rank < world):
        raise InputError(
            f"rank {rank} of {world} does not exist; use at least 2 ranks, numbered from 0."
        )
    host, _, port = address.rpartition(":")
    limit = timedelta(seconds=joining)
    try:
        root = dist.TCPStore(  # type: ignore[attr-defined]
            host,
            int(port),
            is_master=rank == 0 and not hosted,
            timeout=limit,
            wait_for_workers=False,
        )
        store = PrefixStore(f"palaestra/{prefix}", root)
        links = (
            _lead(store, world, host, patience, joining)
            if rank == 0
            else _follow(store, rank, host, patience)
        )
        return Ranks(rank, world, links, patience, store)
    except (OSError, dist.DistError) as error:
        raise InfrastructureFault(
            "learner ranks", f"rank {rank} of {world} could not join at {address}: {error}"
        ) from error


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("palaestra", "torch")}
    return {**packages, "python": platform.python_version()}


def _lead(store: Store, world: int, host: str, patience: float, joining: float) -> dict[int, Link]:
    """Accept the links of all other ranks."""
    token = secrets.token_hex(32)
    near = host in ("localhost", "127.0.0.1")
    until = time.monotonic() + joining
    links: dict[int, Link] = {}
    with socket.create_server(("127.0.0.1" if near else "", 0), backlog=world) as server:
        store.set("rank 0", json.dumps([server.getsockname()[1], token]))
        while len(links) < world - 1:
            missing = sorted(set(range(1, world)) - set(links))
            server.settimeout(max(0.001, until - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                for link in links.values():
                    link.close()
                raise InfrastructureFault(
                    "learner ranks",
                    f"rank {', '.join(map(str, missing))} of {world} did not join within "
                    f"{joining:g} seconds; start as many processes as WORLD_SIZE says.",
                ) from None
            connection.settimeout(patience)
            try:
                given = connection.recv(len(token), socket.MSG_WAITALL)
            except OSError:
                given = b""
            if not secrets.compare_digest(given, token.encode()):
                connection.close()
                continue
            link = Link(connection, 0, "", patience)
            link.rank, link.host, theirs = link.receive(joining)
            if link.rank in links:
                link.send(f"rank {link.rank} has joined already; give each process its own RANK.")
                link.close()
                continue
            links[link.rank] = link
            if theirs != (own := _versions()):
                other = ", ".join(f"{n} {v}" for n, v in theirs.items() if v != own[n])
                here = ", ".join(f"{n} {v}" for n, v in own.items() if v != theirs[n])
                words = (
                    f"rank {link.rank} on {link.host} has {other}, and rank 0 has {here}; install "
                    "the same versions on all machines."
                )
                for known in links.values():
                    known.send(words)
                    known.close()
                raise InputError(words)
    for link in links.values():
        link.send(None)
        link.doing = "waiting for work"
    return links


def _follow(store: Store, rank: int, host: str, patience: float) -> dict[int, Link]:
    """Link to rank 0."""
    port, token = json.loads(store.get("rank 0"))
    connection = socket.create_connection((host, port), timeout=patience)
    connection.sendall(token.encode())
    link = Link(connection, 0, host, patience)
    link.doing = "leading"
    link.send((rank, f"{platform.node()}, process {os.getpid()}", _versions()))
    refusal = link.receive()
    if refusal is not None:
        link.close()
        raise InputError(refusal)
    return {0: link}
