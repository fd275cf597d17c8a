"""Engines: processes on other machines that act with copies of the weights that are trained here.

The driver sends each engine the checkpoint once and then every version of the weights, and routes
the model calls of the run (see `router`). A call whose engine dies or freezes is asked again of
another one with the same seed. Only an engine that confirmed the wanted version is asked, and only
an answer that was sampled with known weights is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cluster import vllm_process
from palaestra.cluster.engine_process import Load, Origin, Serves
from palaestra.cluster.placement import Kind
from palaestra.cluster.router import Router, Ticket
from palaestra.cluster.supervisor import Launcher, Peer, Supervisor
from palaestra.cluster.worker_messages import read
from palaestra.core.errors import ClusterFailed, InfrastructureFault, PalaestraError
from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.remote.endpoint import Endpoint, RetryPolicy
from palaestra.models.remote.external_actor import ExternalActor
from palaestra.store.process_roster import Roster

if TYPE_CHECKING:
    from palaestra.models.local.weight_stream import Weights

MODULES = {"resident": "palaestra.cluster.engine_process", "vllm": vllm_process.MODULE}
LOADING = 600.0  # seconds for an engine to act with weights that it was sent
ONCE = RetryPolicy(attempts=1, timeout=600.0)  # what fails is asked of any engine again
FAULTS = 6  # of one call by engines that are not lost, after which it fails
PAUSE = 0.1  # seconds between the first fault of a call and the next try; doubled each time


def engine_kind(count: int, cpus: float = 1.0, gpus: float = 0.0, engine: str = "resident") -> Kind:
    """Return the kind of the engines, "resident" or "vllm"; see `placement.Kind`."""
    note = "each holds the weights and the cache of its sessions"
    return Kind(
        "engine", "cluster.engines", MODULES[engine], "calls", count, count, cpus, gpus, note
    )


@dataclass(frozen=True, slots=True)
class _Policy:
    """The policy that the engines serve."""

    name: str
    renderer: Renderer
    folder: Path
    origin: Origin


class Engines(Supervisor):
    """The engines of a run; an asynchronous context manager."""

    def __init__(
        self,
        launcher: Launcher,
        say: Callable[[str], None],
        kind: Kind,
        *,
        roster: Roster | None = None,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        """Describe the engines; see `Supervisor`."""
        super().__init__(launcher, say, kind, roster=roster, note=note)
        self.router = Router(0)
        self._drains = kind.module == vllm_process.MODULE  # calls end before weights are sent
        self._policy: _Policy | None = None
        self._weights: Weights | None = None
        self._actors: dict[int, ExternalActor] = {}
        self._calls: dict[Ticket, asyncio.Future[Generation]] = {}

    async def ready(self) -> None:
        """Return at once: engines start while the run prepares; `begin` waits for them."""

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
    ) -> Model:
        """Serve a policy; return the model whose calls the engines answer, once all of them can.

        Args:
            name: of the model in recorded calls.
            renderer: of the policy.
            folder: its checkpoint, which stays until `end`; the weights in it do not matter.
            weights: of the policy.
            options: of `models.local.server.load_policy`.
            sessions: how many call it at once at most.
            one_by_one: sample each reply alone, so that no bit depends on which engine does.

        Raises:
            ClusterFailed: the engines die again and again.
        """
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sizes = tuple((str(path.relative_to(folder)), path.stat().st_size) for path in files)
        device = "cuda" if self.kind.gpus else "cpu"
        origin = Origin(
            sizes, {**options, "device": device}, max(1, int(self.kind.cpus)), one_by_one
        )
        self.router = Router(sessions)
        self._policy = _Policy(name, renderer, folder, origin)
        await self.publish(weights)
        await self.until(lambda: self.router.serving >= self.kind.least)
        return _RoutedModel(self, self._policy)

    async def publish(self, weights: Weights) -> None:
        """Act with these weights from now on; calls wait until an engine has them."""
        self._weights = weights
        self.router.want(weights.version)
        await self.notify()

    async def end(self) -> None:
        """Serve no more calls; an engine that is born later gets nothing to do."""
        self._policy = self._weights = None
        for actor in self._actors.values():
            await actor.close()

    # ── calls ────────────────────────────────────────────────────────────────

    async def generate(self, prompt: Prompt) -> Generation:
        """Return the reply of an engine.

        Raises:
            ContextTooLong: the prompt leaves no room for a reply.
            InfrastructureFault: engines that are not lost failed again and again.
            ClusterFailed: there are no engines left.
        """
        faults = 0
        while True:
            ticket = await self._place(prompt.program or "")
            call = asyncio.ensure_future(self._actors[ticket.engine].generate(prompt))
            self._calls[ticket] = call
            try:
                await asyncio.wait({call})
                if call.cancelled():
                    continue  # its engine was lost
                reply = call.result()
                if self.router.accept(ticket, reply.versions or (reply.version,)):
                    self.roster.count(self.kind.name, ticket.engine)
                    return reply
                raise InfrastructureFault(
                    "engine", f"engine {ticket.engine} replied with other weights"
                )
            except InfrastructureFault:
                faults += 1
                if faults == FAULTS:
                    raise
                await asyncio.sleep(PAUSE * 2**faults)
            finally:
                call.cancel()
                self.router.drop(ticket)
                del self._calls[ticket]
                self.worked(ticket.engine)
                if self._drains:
                    await self.notify()

    async def _place(self, session: str) -> Ticket:
        """Return a ticket of an engine as soon as one has the wanted weights."""
        tickets: list[Ticket | None] = []
        group = session.rpartition(".")[0]

        def placed() -> bool:
            tickets.append(self.router.place(session, group))
            return tickets[-1] is not None

        await self.until(placed)
        found = tickets[-1]
        assert found is not None
        return found

    # ── what engines send, and get ───────────────────────────────────────────

    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        birth = peer.greeting.birth
        self.spawn(self._feed(peer))
        while (message := await read(reader)) is not None:
            policy = self._policy
            match message:
                case Serves(version, url) if birth in self.connected and policy is not None:
                    if birth not in self._actors:
                        token = self.secret.hex()
                        endpoint = Endpoint(f"engine {birth}", url, token=token, retries=ONCE)
                        self._actors[birth] = ExternalActor(
                            policy.name, policy.renderer, endpoint, drain=self._drains
                        )
                    self._actors[birth].version = version
                    self.router.confirm(birth, version)
                    await self.notify()

    async def _feed(self, peer: Peer) -> None:
        """Send an engine the checkpoint, and then all versions of the weights that are wanted."""
        birth, sent = peer.greeting.birth, None

        def due() -> bool:
            return birth not in self.connected or (
                self._weights is not None and self._weights.version != sent
            )

        def loaded() -> bool:
            return birth not in self.connected or self.router.version(birth) == sent

        with contextlib.suppress(OSError, ClusterFailed):
            while True:
                await self.until(due)
                policy, weights = self._policy, self._weights
                if birth not in self.connected or policy is None or weights is None:
                    return
                if sent is None:
                    peer.send(policy.origin)
                    for name, _ in policy.origin.files:
                        await peer.send_file(policy.folder / name)
                if self._drains:
                    await self.until(lambda: not self.router.load(birth))
                sent = weights.version
                peer.send(Load(sent, weights.layout))
                await peer.send_bytes(weights.data)
                try:
                    async with asyncio.timeout(LOADING):
                        await self.until(loaded)
                except TimeoutError:
                    await self.lose(birth, f"it did not load its weights within {LOADING:g} s")

    def retire(self, birth: int) -> None:
        self.router.retire(birth)

    def load(self, birth: int) -> int:
        return self.router.load(birth)

    def lost(self, birth: int) -> None:
        for ticket in self.router.lose(birth):
            self._calls[ticket].cancel()
        actor = self._actors.pop(birth, None)
        if actor is not None:
            self.spawn(actor.close())

    def failed(self, failure: PalaestraError) -> None:
        for call in self._calls.values():
            call.cancel()


class _RoutedModel(Model):
    """The policy, by whichever engine answers."""

    def __init__(self, engines: Engines, policy: _Policy) -> None:
        self.name, self.renderer = policy.name, policy.renderer
        self.native_tools = policy.renderer.native_tools
        self._engines = engines

    async def generate(self, prompt: Prompt) -> Generation:
        return await self._engines.generate(prompt)
