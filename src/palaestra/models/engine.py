"""The resident engine: replies for many sessions at once, from one copy of the weights.

Each step runs one batch: the next token of every reply under way, together with new prompt
tokens of requests just begun (continuous batching; Yu et al. 2022). Prompts longer than the
step's budget are read in chunks. A request whose prefix another one of the same step is about
to compute waits one step and shares it.

Where replies or memory run short, the schedule decides who runs. A request that has to give
way keeps what it has sampled and goes on later, with what the cache still knows of it.

Sampling draws one uniform number per token from a hash of (request seed, position), so a
reply depends on its prompt, its seed and the weights, not on its neighbours, nor on being
interrupted (up to the rounding of differently shaped matrix products).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.model import Finish, Sampling
from palaestra.models.attention import StepAttention, rank
from palaestra.models.cache import BLOCK, KeyValueCache
from palaestra.models.choices import ChoiceTree, only
from palaestra.models.decoding import Said
from palaestra.models.graphed import GraphedStep, graphed_step
from palaestra.models.native_attention import native_attention
from palaestra.models.native_layers import NativeLayers, native_layers
from palaestra.models.network import DecoderNetwork
from palaestra.models.packed import packed
from palaestra.models.prefix_tree import common_prefix
from palaestra.models.request import Request
from palaestra.models.sampling import draw, uniform
from palaestra.models.schedule import FirstComeFirstServed, Schedule

if TYPE_CHECKING:  # which needs llguidance
    from palaestra.models.grammar import GrammarMask

MEMORY = 2 * 2**30  # bytes of keys and values: 93,000 tokens of SmolLM2-135M in bf16
WORTH_WAITING = 16  # tokens that another request must be about to compute for us to wait


class OnUpdate(StrEnum):
    """What happens to replies under way when the weights change."""

    DRAIN = "drain"  # the weights may not change before they are complete
    RECOMPUTE = "recompute"  # they go on; their keys and values are computed anew
    KEEP = "keep"  # they go on with the keys and values of the old weights


class Engine:
    """Runs requests step by step; synchronous, knows nothing of sessions."""

    def __init__(
        self,
        network: DecoderNetwork,
        end_tokens: frozenset[int],
        *,
        slots: int = 64,
        context: int = 2048,
        step_tokens: int = 2048,
        memory: int = MEMORY,
        block: int = BLOCK,
        schedule: Schedule | None = None,
        on_update: OnUpdate = OnUpdate.DRAIN,
        text: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """An engine without requests.

        Args:
            network: acts with the weights that it has at each step.
            end_tokens: end a reply when sampled.
            slots: replies under way at once.
            context: longest prompt and reply together, in tokens.
            step_tokens: tokens run at once.
            memory: bytes for keys and values; never exceeded.
            block: tokens that share one piece of that memory.
            schedule: who goes first; None is first come, first served.
            on_update: what `clear` does to replies under way.
            text: decodes sampled tokens, for stop strings; None serves requests without any.

        Raises:
            InputError: the memory does not hold one conversation of `context` tokens.
        """
        config = network.config
        self.network, self.end_tokens, self.slots = network, end_tokens, slots
        self.context = min(context, config.max_position_embeddings)
        self.step_tokens, self.on_update = step_tokens, OnUpdate(on_update)
        self.schedule = schedule or FirstComeFirstServed()
        self.cache = KeyValueCache(network, memory=memory, context=self.context, block=block)
        self.waiting: list[Request] = []  # first come first
        self.running: list[Request] = []  # as they were begun
        self.computed_tokens = 0  # over the engine's life, prompt and sampled
        self.version = 0  # stamped on sampled tokens
        self.holding = False  # begin no reply; only those under way go on
        self._text = text
        self._acting: DecoderNetwork | None = None  # the network, made fast for these weights
        self._layers: NativeLayers | None = None  # and its blocks in one call, where that can be
        self._graphed: GraphedStep | None = None  # or whole steps, on CUDA devices
        self._native = native_attention(
            config.head_dim, self.cache.share, block, network.dtype, network.device
        )

    def submit(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        seed: int,
        program: Hashable | None = None,
        choices: ChoiceTree | None = None,
        grammar: GrammarMask | None = None,
    ) -> Request:
        """Queue one request.

        Args:
            tokens: the prompt.
            sampling: how to sample the reply.
            seed: equal seeds draw equal tokens.
            program: requests of equal programs belong together; None belongs to none.
            choices: the reply is one of them, however long; None: any.
            grammar: the reply is one of its texts, as far as it goes; None: any.

        Raises:
            ContextTooLong: the prompt and one token, or the longest choice, do not fit the context.
            InputError: stop strings for an engine that cannot decode.
        """
        if choices is not None:
            sampling = replace(sampling, max_tokens=choices.longest)
            if len(tokens) + choices.longest > self.context:
                raise ContextTooLong(
                    f"a prompt of {len(tokens)} tokens leaves no room for a choice of "
                    f"{choices.longest} in a context of {self.context}"
                )
        if len(tokens) >= self.context:
            raise ContextTooLong(
                f"a prompt of {len(tokens)} tokens leaves no room in a context of {self.context}"
            )
        if sampling.stop and self._text is None:
            raise InputError(
                "Stop strings need an engine that can decode; construct it with text=."
            )
        alone = object()
        request = Request(
            list(tokens),
            sampling,
            seed,
            alone if program is None else program,
            self.computed_tokens,
            choices or grammar,
        )
        self.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Drop a request whose reply nobody waits for any more."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self.running.remove(request)
            self._release(request)

    @property
    def pending(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def programs(self) -> int:
        """How many programs wait for replies, each for any number of them."""
        return len({request.program for request in (*self.waiting, *self.running)})

    @property
    def under_way(self) -> bool:
        """Whether a reply has been begun and is not complete."""
        return bool(self.running) or any(request.completion for request in self.waiting)

    def clear(self) -> None:
        """Forget all keys and values: the weights have changed.

        Raises:
            RuntimeError: a reply is under way, and `on_update` is to drain.
        """
        if self.on_update is OnUpdate.DRAIN and self.under_way:
            raise RuntimeError("the weights changed while a reply was being sampled")
        if self.on_update is not OnUpdate.KEEP:
            for request in self.running[::-1]:
                self._interrupt(request)
        self.cache.clear()
        self._acting = self._layers = None  # nothing holds on to the packed weights
        if self._graphed is not None and not self._graphed.current:
            self._graphed = None

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Run one batch; returns the requests that finished."""
        self._begin()
        self._make_room()
        batch, counts = self._batch()
        if not batch:
            return []
        last = self._forward(batch, counts)
        ready = [i for i, request in enumerate(batch) if request.left == 0]
        self._sample([batch[i] for i in ready], last[ready])
        finished = [request for request in self.running if request.finish is not None]
        self.running = [request for request in self.running if request.finish is None]
        for request in finished:
            self._release(request)
        return finished

    # ── who runs ─────────────────────────────────────────────────────────────

    def _level(self, request: Request) -> int:
        return self.schedule.level(request, self.computed_tokens)

    def _begin(self) -> None:
        """Begin waiting requests, unless waiting a step saves computing a prefix."""
        budget = self.step_tokens - sum(request.left for request in self.running)
        fresh: list[Request] = []
        clock = self.computed_tokens
        for request in sorted(self.waiting, key=lambda r: self.schedule.order(r, clock)):
            if budget <= 0:
                break
            if self.holding and not request.completion:
                continue
            if self._worth_waiting(request, fresh):
                continue
            if not self._start(request):
                break  # nobody overtakes it: it would wait for ever
            fresh.append(request)
            budget -= request.left
        if fresh:
            self.waiting = [request for request in self.waiting if request.past is None]

    def _worth_waiting(self, request: Request, fresh: Sequence[Request]) -> bool:
        if not fresh:
            return False
        soon = max(common_prefix(r.tokens, request.tokens) for r in fresh)
        if soon < WORTH_WAITING:
            return False
        return soon - self.cache.known(request.tokens) >= WORTH_WAITING

    def _start(self, request: Request) -> bool:
        """Let the request run, in the place of less urgent ones if need be."""
        level, known = self._level(request), request.known()
        while True:
            # one block for each other, so that none has to give way at once
            room = len(self.running) < self.slots
            past = self.cache.acquire(known, spare=len(self.running)) if room else None
            if past is not None:
                break
            last = max(reversed(self.running), key=self._level, default=None)
            if last is None or self._level(last) <= level:
                return False
            self._interrupt(last)
        if not request.completion:
            request.cached = past.length
        request.past = past
        self.running.append(request)
        return True

    def _make_room(self) -> None:
        """Give every running request room for its next tokens; the last in line give way."""
        order = sorted(self.running, key=self._level)
        while order:
            request = order.pop(0)
            while not self.cache.reserve(request.held, request.length):
                last = order.pop() if order else request
                self._interrupt(last)
                if last is request:
                    break

    def _interrupt(self, request: Request) -> None:
        """Back to the head of the line; what it has sampled stays."""
        self.running.remove(request)
        self._release(request)
        request.since = self.computed_tokens
        self.waiting.insert(0, request)

    def _release(self, request: Request) -> None:
        self.cache.release(request.held)
        request.past = None

    # ── what runs ────────────────────────────────────────────────────────────

    def _batch(self) -> tuple[list[Request], list[int]]:
        """The requests of this step and how many tokens each one runs; single tokens first."""
        budget = self.step_tokens
        chosen: list[tuple[Request, int]] = []
        for request in sorted(self.running, key=lambda r: r.left > 1):
            count = min(request.left, budget)
            if count > 0:
                chosen.append((request, count))
                budget -= count
        chosen.sort(key=lambda pair: rank(pair[0].held.length, pair[1]))
        return [request for request, _ in chosen], [count for _, count in chosen]

    def _forward(self, batch: Sequence[Request], counts: Sequence[int]) -> Tensor:
        """Run the next tokens; returns the hidden state [B, width] of each request's last one."""
        starts = [request.held.length for request in batch]
        chunks = [r.known(s)[:n] for r, s, n in zip(batch, starts, counts, strict=True)]
        blocks = [request.held.blocks for request in batch]
        if self._acting is None:
            self._acting = packed(self.network)
            self._layers = native_layers(self._acting, self.cache, self._native)
            self._graphed = self._graphed or graphed_step(
                self.network, self.cache, self.slots, self.context
            )
        if self._graphed is not None:
            last = self._graphed(chunks, starts, blocks)
        else:
            last = self._run(self._acting, chunks, starts, blocks)
        for request, chunk in zip(batch, chunks, strict=True):
            self.cache.commit(request.held, chunk)
            self.schedule.served(request, len(chunk))
        self.computed_tokens += sum(counts)
        return last

    def _run(
        self,
        network: DecoderNetwork,
        chunks: Sequence[Sequence[int]],
        starts: Sequence[int],
        blocks: Sequence[Sequence[int]],
    ) -> Tensor:
        """The hidden state of each chunk's last token, where no step is recorded."""
        attend = StepAttention(self.cache, blocks, starts, [len(c) for c in chunks], self._native)
        tokens = torch.tensor([t for chunk in chunks for t in chunk], device=network.device)
        x = network.embed(tokens)
        if self._layers is not None and attend.in_place is not None:
            x = self._layers(x, attend.in_place)
        else:
            x = network.run(x, attend.positions, attend)
        return x[attend.last]

    def _sample(self, requests: Sequence[Request], hidden: Tensor) -> None:
        if not requests:
            return
        assert self._acting is not None
        logits = self._acting.logits(hidden)
        for row, request in enumerate(requests):
            if request.held_to is not None:
                only(logits, row, request.held_to.allowed(request.completion))
        wide, device = self.network.wide_dtype, logits.device
        temperature = [r.sampling.temperature for r in requests]
        chances = [uniform(r.seed, len(r.completion)) for r in requests]
        drawn = draw(
            logits,
            torch.tensor(temperature, dtype=wide, device=device),
            torch.tensor(chances, dtype=wide, device=device),
        )
        numbers = (column.tolist() for column in drawn)
        for request, token, lp, nats in zip(requests, *numbers, strict=True):
            request.completion.append(token)
            request.logprobs.append(lp)
            request.entropies.append(nats)
            request.versions.append(self.version)
            if token in self.end_tokens or self._stopped(request):
                request.finish = Finish.STOP
            elif (
                len(request.completion) >= request.sampling.max_tokens
                or request.length >= self.context
            ):
                request.finish = Finish.LENGTH

    def _stopped(self, request: Request) -> bool:
        """Whether the reply contains a stop string; none did before its last token."""
        if not request.sampling.stop:
            return False
        assert self._text is not None
        if request.said is None:
            request.said = Said(self._text, request.sampling.stop)
        return request.said.stops(request.completion[-1])
