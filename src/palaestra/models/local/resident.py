"""The resident model: one copy of the weights in this process, for acting and training.

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
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.model import Generation, Listener, Model, Prompt, Renderer, Sampling
from palaestra.models.call_router import CallRouter
from palaestra.models.local.choices import ChoiceTree
from palaestra.models.local.engine import MEMORY, Engine, OnUpdate
from palaestra.models.local.forced_calls import CallGrammars
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.request import Request
from palaestra.models.local.schedule import ScheduleName, schedule_of
from palaestra.models.local.thought_limit import ThoughtLimit
from palaestra.models.renderers.tool_conventions import check_tool_options, identified, read_reply
from palaestra.models.scripted.scripted_model import given_tokens

if TYPE_CHECKING:
    from palaestra.models.local.grammar import Grammars

GRACE = 0.005  # seconds without a new request after which a step no longer waits
PATIENCE = 0.1  # share of a step's duration; a step waits no longer than that (or GRACE) in all


@dataclass(slots=True)
class Throughput:
    """What the engine did since the last `take_throughput`."""

    sampled: int = 0  # tokens
    computed: int = 0  # tokens run through the network, prompt and sampled
    seconds: float = 0.0  # inside the engine


@dataclass(slots=True, eq=False)
class _Subscription:
    """A request whose tokens are passed to a listener as they are sampled."""

    request: Request
    listen: Listener
    sent: int = 0  # tokens

    def notify(self) -> None:
        """Pass on the tokens sampled since the last call."""
        request, sent = self.request, self.sent
        if len(request.completion) > sent:
            self.sent = len(request.completion)
            self.listen(request.completion[sent:], request.logprobs[sent:])


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
            name: its name in recorded calls.
            network: acts, and may be trained between replies.
            renderer: messages to tokens and back.
            slots: replies in flight at once.
            context: longest conversation in tokens.
            memory: bytes for keys and values; never exceeded.
            schedule: which requests go first when more are pending than fit.
            on_update: what happens to replies in flight when the weights change.
            lockstep: deterministic mode, see above.

        Raises:
            InputError: the memory does not hold one conversation of `context` tokens.
        """
        self.name, self.network, self.renderer = name, network, renderer
        self.native_tools = renderer.native_tools
        self.limits_reasoning = bool(renderer.thought_end)
        self.scores_answers = not network.own_cache
        self.lockstep = lockstep
        self.adapter: str | None = OWN  # of the network, if it has any; None: the base alone
        self.adapters: set[str] = set()  # that were added to the network since
        self.router: CallRouter | None = None  # of the calls to adapters; None: there is none
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
        self._updates = 0  # in progress, see `held`
        self._waiters: dict[int, tuple[Request, asyncio.Future[None]]] = {}
        self._subscriptions: list[_Subscription] = []
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
        from palaestra.models.local.grammar import Grammars

        vocabulary = self.renderer.vocabulary()
        assert vocabulary is not None  # the session checks `constrains` first
        return Grammars(vocabulary, self.network.config.vocab_size, self.renderer.end_tokens)

    @cached_property
    def _call_grammars(self) -> CallGrammars:
        vocabulary = self.renderer.vocabulary()
        assert vocabulary is not None  # `constrains`
        return CallGrammars(self.renderer, vocabulary)

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
        """Begin no reply within the context, in which weights change and `updated` is called.

        While `draining`, replies in flight must be completed first; otherwise they pause, and
        continue with the new weights.
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
        """Stamp a new version and drop cached keys and values, after the weights have changed.

        Raises:
            RuntimeError: a reply is in flight, and `on_update` is `drain`; see `held`.
        """
        self.engine.clear()
        self.version += 1

    def beside(self, name: str, adapter: str | None, *, frozen: bool = False) -> AdaptedModel:
        """Return a model of another adapter of the network, or of the base without one.

        Both share the weights, the engine and its batches.

        Args:
            name: its name in recorded calls.
            adapter: of the network, see `lora.add_adapter`; None: the base alone.
            frozen: its weights never change, whatever else is trained.
        """
        return AdaptedModel(name, self, adapter, frozen=frozen)

    async def generate(self, prompt: Prompt) -> Generation:
        return await self.generate_by(prompt, self, self.adapter)

    async def generate_by(self, prompt: Prompt, model: Model, adapter: str | None) -> Generation:
        """Generate with one of the network's adapters, for a model that has a name and a limit."""
        assert prompt.tokens is not None  # the session renders for models with a renderer
        started = time.monotonic()
        asked = model.limited(self._held_to_call(prompt))
        tree = None if asked.choices is None else ChoiceTree.of(asked.choices, self.renderer)
        mask = None if asked.grammar is None else self._grammars.of(asked.grammar)
        thought = None
        if asked.reasoning_tokens is not None and tree is None and mask is None:
            thought = ThoughtLimit(asked.reasoning_tokens, self.renderer, prompt.tokens, self.name)
        answer: tuple[int, ...] = ()
        if prompt.answer is not None:
            answer = given_tokens(prompt.answer, prompt, self.renderer)
        request = self.engine.submit(
            *(prompt.tokens, asked, prompt.seed, prompt.program, tree, mask, thought, adapter),
            *(prompt.images, answer),
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[id(request)] = (request, done)
        subscription = None if prompt.listen is None else _Subscription(request, prompt.listen)
        if subscription is not None:
            self._subscriptions.append(subscription)
        if self._driver is None or self._driver.done():
            self._changed = asyncio.Event()  # of this event loop
            self._driver = asyncio.create_task(self._drive())
        self._changed.set()
        try:
            await done
        finally:
            self._waiters.pop(id(request), None)
            if subscription is not None:
                self._subscriptions.remove(subscription)
            if request.finish is None:
                self.engine.cancel(request)
                self._changed.set()
        assert request.finish is not None
        reply = read_reply(self.renderer, prompt, self.renderer.text(request.completion))
        return Generation(
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            tokens=tuple(request.completion),
            logprobs=tuple(request.logprobs),
            entropies=tuple(request.entropies),
            finish=request.finish,
            policy=asked.policy(model.name),
            version=request.versions[0],
            prompt_tokens=len(prompt.tokens),
            computed_tokens=len(prompt.tokens) - request.cached,
            seconds=time.monotonic() - started,
            versions=tuple(request.versions),
            forced=tuple(request.forced),
            answer_logprobs=tuple(request.answer_logprobs),
        )

    def _held_to_call(self, prompt: Prompt) -> Sampling:
        """Return the sampling options, with a grammar if the reply must be a call of a tool.

        Such a reply is exactly one call, without reasoning and text, unless `max_tokens` or a stop
        string cuts it; its log-probabilities are under the restriction.
        """
        sampling, choice = prompt.sampling, prompt.sampling.tool_choice
        if choice in ("auto", "none"):
            check_tool_options(self.name, sampling)
            return sampling
        # one call is no parallel call
        check_tool_options(
            self.name, replace(sampling, tool_choice="auto", parallel_tool_calls=None)
        )
        if sampling.choices is not None or sampling.grammar is not None:
            raise InputError(
                f"tool_choice={choice!r} excludes `choices` and `grammar`; leave one of them out."
            )
        if not self.constrains:
            raise InputError(
                f"tool_choice={choice!r} needs constrained decoding, which '{self.name}' lacks "
                "here; pip install 'palaestra[serving]', or use tool_choice='auto'."
            )
        (call,) = identified([ToolCall("", {})], prompt.seed)
        grammar = self._call_grammars.of(prompt.tools, choice, call.id)
        return replace(sampling, grammar=grammar)

    async def _drive(self) -> None:
        """Step the engine while requests are pending; one driver at a time."""
        seconds = 0.0  # of the previous step
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
                        done.set_exception(error)  # each session reports it as its own fault
                return
            seconds = time.monotonic() - started
            self.throughput.seconds += seconds
            self.throughput.computed += self.engine.computed_tokens - before
            for subscription in self._subscriptions:
                subscription.notify()
            for request in finished:
                self.throughput.sampled += len(request.completion)
                _, done = self._waiters[id(request)]
                if not done.done():
                    done.set_result(None)

    @property
    def draining(self) -> bool:
        """Whether an update waits for replies in flight."""
        drains = self.engine.on_update is OnUpdate.DRAIN
        return self._updates > 0 and drains and self.engine.under_way

    async def _gather(self, most: float) -> None:
        """Wait for sessions that are about to submit a request, so that they share the next step.

        A step takes tens of milliseconds, an environment's step less than one. So a step waits
        as long as requests keep coming, but at most `most` seconds in all; a slow environment
        delays it by `GRACE` only. In lockstep it waits for all participants. During an update it
        does not wait.
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
        """Return what the engine did since the last call."""
        taken, self.throughput = self.throughput, Throughput()
        return taken


class AdaptedModel(Model):
    """A model of another adapter on the base of a resident model; see `ResidentModel.beside`."""

    chooses = True

    def __init__(
        self, name: str, base: ResidentModel, adapter: str | None, *, frozen: bool = False
    ) -> None:
        self.name, self.base, self.adapter, self.frozen = name, base, adapter, frozen
        self.renderer, self.native_tools = base.renderer, base.native_tools
        self.limits_reasoning = base.limits_reasoning
        self.scores_answers = base.scores_answers

    @property
    def constrains(self) -> bool:
        return self.base.constrains

    async def generate(self, prompt: Prompt) -> Generation:
        reply = await self.base.generate_by(prompt, self, self.adapter)
        # versions count the updates of what is trained on the same base
        return replace(reply, version=0, versions=()) if self.frozen else reply

    @property
    def host(self) -> Model:
        return self.base
