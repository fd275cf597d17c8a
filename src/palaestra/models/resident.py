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
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from palaestra.core.model import Generation, Listener, Model, Prompt, Renderer
from palaestra.models.choices import ChoiceTree
from palaestra.models.engine import MEMORY, Engine, OnUpdate
from palaestra.models.network import DecoderNetwork
from palaestra.models.request import Request
from palaestra.models.schedule import ScheduleName, schedule_of

if TYPE_CHECKING:
    from palaestra.models.grammar import Grammars

GRACE = 0.005  # seconds without a new request after which a step no longer waits
PATIENCE = 0.1  # of a step's duration: a step waits no longer than that, or GRACE, in all


@dataclass(slots=True)
class Throughput:
    """What the engine did since the last `take`."""

    sampled: int = 0  # tokens
    computed: int = 0  # tokens run through the network, prompt and sampled
    seconds: float = 0.0  # inside the engine


@dataclass(slots=True, eq=False)
class _Heard:
    """A request whose reply is listened to."""

    request: Request
    listen: Listener
    told: int = 0  # tokens

    def tell(self) -> None:
        """The tokens sampled since the last time."""
        request, told = self.request, self.told
        if len(request.completion) > told:
            self.told = len(request.completion)
            self.listen(request.completion[told:], request.logprobs[told:])


class ResidentModel(Model):
    """A `DecoderNetwork` with a renderer, an engine and a version number."""

    renderer: Renderer
    chooses = True

    def __init__(
        self,
        name: str,
        network: DecoderNetwork,
        renderer: Renderer,
        *,
        slots: int = 64,
        context: int = 2048,
        memory: int = MEMORY,
        schedule: ScheduleName = "fcfs",
        on_update: OnUpdate = OnUpdate.DRAIN,
        lockstep: bool = False,
    ) -> None:
        """Serve `network`.

        Args:
            name: under which its calls are recorded.
            network: acts, and may be trained in between.
            renderer: messages to tokens and back.
            slots: replies under way at once.
            context: longest conversation in tokens.
            memory: bytes for keys and values; never exceeded.
            schedule: who goes first when more replies are asked for than fit.
            on_update: what happens to replies under way when the weights change.
            lockstep: deterministic mode, see above.

        Raises:
            InputError: the memory does not hold one conversation of `context` tokens.
        """
        self.name, self.network, self.renderer = name, network, renderer
        self.lockstep = lockstep
        self.engine = Engine(
            network,
            renderer.end_tokens,
            slots=slots,
            context=context,
            memory=memory,
            schedule=schedule_of(schedule),
            on_update=on_update,
            text=renderer.text,
        )
        self.throughput = Throughput()
        self._participants = 0
        self._updates = 0  # under way, see `held`
        self._waiters: dict[int, tuple[Request, asyncio.Future[None]]] = {}
        self._heard: list[_Heard] = []  # the requests whose replies somebody listens to
        self._changed = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None

    @property
    def version(self) -> int:
        """How often the weights have been updated."""
        return self.engine.version

    @version.setter
    def version(self, version: int) -> None:
        self.engine.version = version

    @cached_property
    def constrains(self) -> bool:
        return find_spec("llguidance") is not None and self.renderer.vocabulary() is not None

    @cached_property
    def _grammars(self) -> Grammars:
        from palaestra.models.grammar import Grammars

        vocabulary = self.renderer.vocabulary()
        assert vocabulary is not None  # the session asks whether it can be held
        return Grammars(vocabulary, self.network.config.vocab_size, self.renderer.end_tokens)

    @contextmanager
    def participant(self) -> Iterator[None]:
        """See `Model.participant`; lockstep runs a batch when all participants wait for it."""
        self._participants += 1
        try:
            yield
        finally:
            self._participants -= 1
            self._changed.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until the weights have moved and `updated` was called, no reply is begun.

        While `draining`, those under way must be let come to their ends first; else they
        pause, and go on under the new weights.
        """
        self._updates += 1
        self.engine.holding = True
        self._changed.set()
        try:
            yield
        finally:
            self._updates -= 1
            self.engine.holding = self._updates > 0
            self._changed.set()

    def updated(self) -> None:
        """The weights have changed: stamp a new version and drop cached keys and values.

        Raises:
            RuntimeError: a reply is under way, and `on_update` is to drain; see `held`.
        """
        self.engine.clear()
        self.version += 1

    async def generate(self, prompt: Prompt) -> Generation:
        assert prompt.tokens is not None  # the session renders for models with a renderer
        started = time.monotonic()
        asked = prompt.sampling
        tree = None if asked.choices is None else ChoiceTree.of(asked.choices, self.renderer)
        mask = None if asked.grammar is None else self._grammars.of(asked.grammar)
        request = self.engine.submit(prompt.tokens, asked, prompt.seed, prompt.program, tree, mask)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[id(request)] = (request, done)
        heard = None if prompt.listen is None else _Heard(request, prompt.listen)
        if heard is not None:
            self._heard.append(heard)
        if self._driver is None or self._driver.done():
            self._changed = asyncio.Event()  # of this event loop
            self._driver = asyncio.create_task(self._drive())
        self._changed.set()
        try:
            await done
        finally:
            self._waiters.pop(id(request), None)
            if heard is not None:
                self._heard.remove(heard)
            if request.finish is None:
                self.engine.cancel(request)
                self._changed.set()
        assert request.finish is not None
        return Generation(
            text=self.renderer.text(request.completion),
            tokens=tuple(request.completion),
            logprobs=tuple(request.logprobs),
            entropies=tuple(request.entropies),
            finish=request.finish,
            policy=asked.policy(self.name),
            version=request.versions[0],
            prompt_tokens=len(prompt.tokens),
            computed_tokens=len(prompt.tokens) - request.cached,
            seconds=time.monotonic() - started,
            versions=tuple(request.versions),
        )

    async def _drive(self) -> None:
        """Step the engine while anything waits; one driver at a time."""
        seconds = 0.0  # of the step before
        while self.engine.pending:
            await self._gather(max(GRACE, PATIENCE * seconds))
            if self._updates and not self.draining:
                self._changed.clear()
                await self._changed.wait()
                continue
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
            seconds = time.monotonic() - started
            self.throughput.seconds += seconds
            self.throughput.computed += self.engine.computed_tokens - before
            for heard in self._heard:
                heard.tell()
            for request in finished:
                self.throughput.sampled += len(request.completion)
                _, done = self._waiters[id(request)]
                if not done.done():
                    done.set_result(None)

    @property
    def draining(self) -> bool:
        """Whether an update waits for replies under way."""
        drains = self.engine.on_update is OnUpdate.DRAIN
        return self._updates > 0 and drains and self.engine.under_way

    async def _gather(self, most: float) -> None:
        """Wait for sessions that are about to ask, so that they share the next step.

        A step takes tens of milliseconds, a world's answer less than one: as long as
        requests keep coming, the step waits, but no longer than `most` seconds in all; a slow
        world delays it by `GRACE` only. In lockstep it waits for everyone. Nobody is waited
        for during an update.
        """
        await asyncio.sleep(0)
        until = time.monotonic() + most
        while self.engine.programs < self._participants and not self._updates:
            patience = None if self.lockstep else min(GRACE, until - time.monotonic())
            self._changed.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._changed.wait()
            except TimeoutError:
                return

    def take_throughput(self) -> Throughput:
        """What the engine did since the last call."""
        taken, self.throughput = self.throughput, Throughput()
        return taken
