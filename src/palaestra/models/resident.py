"""The resident model: one copy of the weights in this process, for acting and learning.

Sessions call `generate` concurrently; a driver task batches them through the
engine. In lockstep (deterministic mode) the driver runs a batch only when every
session that uses the model is waiting for it, and orders the batch by seed, so
equal seeds give equal batches and bit-equal replies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from palaestra.core.model import Generation, Model, Prompt, Renderer
from palaestra.models.engine import Engine, Request
from palaestra.models.network import DecoderNetwork

GRACE = 0.005  # seconds without a new request after which a step no longer waits


@dataclass(slots=True)
class Throughput:
    """What the engine did since the last `take`."""

    sampled: int = 0  # tokens
    computed: int = 0  # tokens run through the network, prompt and sampled
    seconds: float = 0.0  # inside the engine


class ResidentModel(Model):
    """A `DecoderNetwork` with a renderer, an engine and a version number."""

    renderer: Renderer

    def __init__(
        self,
        name: str,
        network: DecoderNetwork,
        renderer: Renderer,
        *,
        slots: int = 64,
        context: int = 2048,
        lockstep: bool = False,
    ) -> None:
        self.name, self.network, self.renderer = name, network, renderer
        self.version = 0
        self.lockstep = lockstep
        self.engine = Engine(network, renderer.end_tokens, slots=slots, context=context)
        self.throughput = Throughput()
        self._participants = 0
        self._waiters: dict[int, tuple[Request, asyncio.Future[None]]] = {}
        self._changed: asyncio.Event = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None

    @contextmanager
    def participant(self) -> Iterator[None]:
        """See `Model.participant`; lockstep runs a batch when all participants wait for it."""
        self._participants += 1
        try:
            yield
        finally:
            self._participants -= 1
            self._changed.set()

    def updated(self) -> None:
        """The weights have changed: stamp a new version and drop cached keys and values."""
        self.version += 1
        self.engine.clear()

    async def generate(self, prompt: Prompt) -> Generation:
        assert prompt.tokens is not None  # the session renders for models with a renderer
        started = time.monotonic()
        request = self.engine.submit(prompt.tokens, prompt.sampling, prompt.seed)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[id(request)] = (request, done)
        self._changed.set()
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            await done
        finally:
            self._waiters.pop(id(request), None)
            if request.finish is None:
                self.engine.cancel(request)
        assert request.finish is not None
        return Generation(
            text=self.renderer.text(request.completion),
            tokens=tuple(request.completion),
            logprobs=tuple(request.logprobs),
            finish=request.finish,
            policy=self.name,
            version=self.version,
            prompt_tokens=len(prompt.tokens),
            computed_tokens=len(prompt.tokens) - request.cached,
            seconds=time.monotonic() - started,
        )

    async def _drive(self) -> None:
        """Step the engine while anything waits; one driver at a time."""
        while self.engine.pending:
            await self._gather()
            if self.lockstep:
                self.engine.waiting.sort(key=lambda request: request.seed)
            started, before = time.monotonic(), self.engine.computed_tokens
            try:
                finished = self.engine.step()
            except Exception as error:
                for _, done in list(self._waiters.values()):
                    if not done.done():
                        done.set_exception(error)  # each session tells it as its own fault
                return
            self.throughput.seconds += time.monotonic() - started
            self.throughput.computed += self.engine.computed_tokens - before
            for request in finished:
                self.throughput.sampled += len(request.completion)
                _, done = self._waiters[id(request)]
                if not done.done():
                    done.set_result(None)

    async def _gather(self) -> None:
        """Wait for sessions that are about to ask, so that they share the next step.

        A step takes tens of milliseconds, a world's answer less than one: as long as
        requests keep coming, the step waits; a slow world delays it by `GRACE` only.
        In lockstep it waits for everyone.
        """
        await asyncio.sleep(0)
        while self.engine.pending < self._participants:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self.lockstep else GRACE):
                    await self._changed.wait()
            except TimeoutError:
                return

    def take_throughput(self) -> Throughput:
        """What the engine did since the last call."""
        taken, self.throughput = self.throughput, Throughput()
        return taken
