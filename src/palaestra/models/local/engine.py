"""The resident engine: replies for many sessions at once, from one copy of the weights.

Each step runs one batch: the next token of every reply in flight, together with prompt tokens of
requests just started (continuous batching; Yu et al. 2022). Prompts longer than the step's budget
are prefilled in chunks. A request whose prefix is about to be computed by another one of the same
step waits one step and shares it.

If slots or memory run short, the schedule decides which requests run. A preempted request keeps
its sampled tokens and continues later, with what the cache still holds of it.

A request may have a known right answer, whose log-probabilities are measured once its prompt is
read: one more pass runs the answers of all requests that are so far, each as a fork of its
conversation. Their keys and values lie where those of the sampled reply will be, which overwrites
them, and the cache never knows them. No other pass changes.

Sampling takes one uniform number per token from a hash of (request seed, position), so a reply
depends on its prompt, its seed and the weights, not on its neighbours or on preemption (up to the
rounding of differently shaped matrix products).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.message import ImageSpan
from palaestra.core.model import Finish, Sampling
from palaestra.models.local.cache import BLOCK, KeyValueCache
from palaestra.models.local.choices import ChoiceTree, keep_only
from palaestra.models.local.conversation_cache import ConversationCache, OwnCachePass
from palaestra.models.local.decoding import StopDetector
from palaestra.models.local.engine_attention import rank
from palaestra.models.local.engine_pass import Chunk, EnginePass
from palaestra.models.local.guidance import Guide
from palaestra.models.local.image_features import places_of
from palaestra.models.local.image_tokens import ImageNumbers, with_images
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.prefix_tree import common_prefix
from palaestra.models.local.request import Request
from palaestra.models.local.sampling import sample, uniform
from palaestra.models.local.schedule import FirstComeFirstServed, Schedule
from palaestra.models.local.thought_limit import ThoughtLimit

if TYPE_CHECKING:  # which needs llguidance
    from palaestra.models.local.grammar import GrammarMask
    from palaestra.models.local.own_cache_network import OwnCacheNetwork

MEMORY = 2 * 2**30  # bytes of keys and values: 93,000 tokens of SmolLM2-135M in bf16
MEASURED = 256  # tokens of answers whose logits are in memory at once
WORTH_WAITING = 16  # tokens that another request must be about to compute for us to wait


class OnUpdate(StrEnum):
    """What happens to replies in flight when the weights change."""

    DRAIN = "drain"  # the weights may not change before the replies are complete
    RECOMPUTE = "recompute"  # they continue; their keys and values are recomputed
    KEEP = "keep"  # they continue with the keys and values of the old weights


class Engine:
    """A synchronous inference engine that runs requests step by step, independent of sessions."""

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
        """Start without requests.

        Args:
            network: acts with the weights that it has at each step.
            end_tokens: end a reply when sampled.
            slots: replies in flight at once.
            context: longest prompt and reply together, in tokens.
            step_tokens: most tokens run in one step.
            memory: bytes for keys and values, or for the caches of conversations; never exceeded.
            block: tokens per block of that memory.
            schedule: which requests go first; None is first come, first served.
            on_update: what `clear` does to replies in flight.
            text: decodes sampled tokens, for stop strings; None allows no stop strings.

        Raises:
            InputError: the memory does not hold one conversation of `context` tokens.
        """
        config = network.config
        self.network, self.end_tokens, self.slots = network, end_tokens, slots
        self.context = network.context = min(context, config.max_position_embeddings)
        self.step_tokens, self.on_update = step_tokens, OnUpdate(on_update)
        self.schedule = schedule or FirstComeFirstServed()
        self.cache: KeyValueCache | ConversationCache
        self.forward: EnginePass | OwnCachePass
        if network.own_cache:
            own = cast("OwnCacheNetwork", network)
            self.cache = ConversationCache(own, memory=memory, context=self.context)
            self.forward = OwnCachePass(own)
        else:
            self.cache = KeyValueCache(network, memory=memory, context=self.context, block=block)
            self.forward = EnginePass(network, self.cache, slots)
        self.waiting: list[Request] = []  # in the order of arrival
        self.running: list[Request] = []  # in the order of their start
        self.computed_tokens = 0  # over the engine's life, prompt and sampled
        self.version = 0  # stamped on sampled tokens
        self.holding = False  # start no reply; only those in flight continue
        self.guide: Guide | None = None  # changes the logits of all replies; None: there is none
        self._text = text
        self._numbers = ImageNumbers()

    def submit(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        seed: int,
        program: Hashable | None = None,
        choices: ChoiceTree | None = None,
        grammar: GrammarMask | None = None,
        thought: ThoughtLimit | None = None,
        adapter: str | None = OWN,
        images: Sequence[ImageSpan] = (),
        answer: Sequence[int] = (),
    ) -> Request:
        """Queue one request.

        Args:
            tokens: the prompt.
            sampling: how to sample the reply.
            seed: equal seeds sample equal tokens.
            program: requests of equal programs belong together; None belongs to none.
            choices: the reply is one of them, whatever its length; None: any.
            grammar: the reply is a text of it, possibly cut; None: any.
            thought: ends its reasoning after some tokens; None: never.
            adapter: the one of the network's adapters that replies, if it has any; None: the base
                without one.
            images: among the tokens, for a network that sees.
            answer: the known right reply, whose log-probabilities are measured; empty: none.

        Raises:
            ContextTooLong: the prompt and one token, the longest choice or the answer do not fit
                the context.
            InputError: there are stop strings, and the engine cannot decode, or images, and the
                network cannot see, or an answer, and the network keeps a cache of its own.
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
        if answer and not self.measures:
            raise InputError(
                "An answer is measured in a fork of the cache, and the model keeps its own, which "
                "the engine cannot fork; leave the answer out."
            )
        if answer and len(tokens) + len(answer) > self.context:
            raise ContextTooLong(
                f"a prompt of {len(tokens)} tokens leaves no room for the known answer of "
                f"{len(answer)} in a context of {self.context}"
            )
        if sampling.stop and self._text is None:
            raise InputError(
                "Stop strings need an engine that can decode; construct it with text=."
            )
        if images and not self.network.sees:
            raise InputError(
                "The prompt holds an image, and the network reads text only; leave images out, or "
                "choose a model that sees."
            )
        alone = object()
        prompt = with_images(tokens, images, self._numbers)
        shown = {self._numbers(span.image): span.image for span in images}
        request = Request(
            prompt,
            sampling,
            seed,
            alone if program is None else program,
            self.computed_tokens,
            choices or grammar,
            thought=thought,
            adapter=adapter,
            images=shown,
            places=places_of(self.network, prompt, shown),
            answer=answer,
        )
        self.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Drop a request whose reply is no longer needed."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self.running.remove(request)
            self._release(request)

    @property
    def measures(self) -> bool:
        """Whether answers can be measured."""
        return isinstance(self.forward, EnginePass)

    @property
    def pending(self) -> int:
        return len(self.waiting) + len(self.running)

    @property
    def programs(self) -> int:
        """Number of programs with pending requests."""
        return len({request.program for request in (*self.waiting, *self.running)})

    @property
    def under_way(self) -> bool:
        """Whether a reply has been started and is not complete."""
        return bool(self.running) or any(request.completion for request in self.waiting)

    def clear(self) -> None:
        """Forget all keys and values: the weights have changed.

        Raises:
            RuntimeError: a reply is in flight, and `on_update` is `drain`.
        """
        if self.on_update is OnUpdate.DRAIN and self.under_way:
            raise RuntimeError("the weights changed while a reply was being sampled")
        if self.on_update is not OnUpdate.KEEP:
            for request in self.running[::-1]:
                self._interrupt(request)
        self.cache.clear()
        self.forward.clear()
        if self.guide is not None:
            self.guide.clear()
        if not self.pending:  # nothing holds numbers
            self._numbers = ImageNumbers()

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Run one batch; return the requests that finished."""
        self._begin()
        self._make_room()
        batch, counts = self._batch()
        if not batch:
            return []
        last = self._forward(batch, counts)
        ready = [i for i, request in enumerate(batch) if request.left == 0]
        if ready:
            sampling, logits = [batch[i] for i in ready], self.forward.logits(last[ready])
            self._measure(sampling, logits)
            if self.guide is not None:
                known = [request.known() for request in sampling]
                logits = self.guide.guided(logits, known, self.step_tokens)
            self._sample(sampling, logits)
        finished = [request for request in self.running if request.finish is not None]
        self.running = [request for request in self.running if request.finish is None]
        for request in finished:
            self._release(request)
        return finished

    # ── scheduling ───────────────────────────────────────────────────────────

    def _level(self, request: Request) -> int:
        return self.schedule.level(request, self.computed_tokens)

    def _begin(self) -> None:
        """Start waiting requests, unless waiting one step saves computing a prefix."""
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
                break  # no request overtakes it: it could wait forever
            fresh.append(request)
            budget -= request.left
        if fresh:
            self.waiting = [request for request in self.waiting if request.past is None]

    def _worth_waiting(self, request: Request, fresh: Sequence[Request]) -> bool:
        if not fresh:
            return False
        same = (r.tokens for r in fresh if r.adapter == request.adapter)
        soon = max((common_prefix(tokens, request.tokens) for tokens in same), default=0)
        if soon < WORTH_WAITING:
            return False
        return soon - self.cache.known(request.tokens, request.adapter) >= WORTH_WAITING

    def _start(self, request: Request) -> bool:
        """Start the request, preempting less urgent ones if necessary."""
        level, known = self._level(request), request.known()
        while True:
            # one spare block for each running request, so that none is preempted at once
            room = len(self.running) < self.slots
            spare = len(self.running)
            past = self.cache.acquire(known, spare, request.adapter) if room else None
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
        """Reserve blocks for every running request's next tokens; preempt the least urgent."""
        order = sorted(self.running, key=self._level)
        while order:
            request = order.pop(0)
            while not self.cache.reserve(request.held, request.reach):
                last = order.pop() if order else request
                self._interrupt(last)
                if last is request:
                    break

    def _interrupt(self, request: Request) -> None:
        """Preempt a request: it returns to the head of the queue with its sampled tokens."""
        self.running.remove(request)
        self._release(request)
        request.since = self.computed_tokens
        self.waiting.insert(0, request)

    def _release(self, request: Request) -> None:
        self.cache.release(request.held)
        request.past = None

    # ── computation ──────────────────────────────────────────────────────────

    def _batch(self) -> tuple[list[Request], list[int]]:
        """Return this step's requests and the tokens that each one runs; single tokens first."""
        budget = self.step_tokens
        chosen: list[tuple[Request, int]] = []
        for request in sorted(self.running, key=lambda r: r.left > 1):
            count = min(request.left, budget) if self.forward.splits else request.left
            if count > 0 and budget > 0:
                chosen.append((request, count))
                budget -= count
        chosen.sort(key=lambda pair: rank(pair[0].held.length, pair[1]))
        return [request for request, _ in chosen], [count for _, count in chosen]

    def _forward(self, batch: Sequence[Request], counts: Sequence[int]) -> Tensor:
        """Run the next tokens; return the hidden state [B, width] of each request's last one."""
        chunks = [
            Chunk(
                request.known(request.held.length)[:count],
                request.held,
                request.images,
                request.placed(request.held.length, count),
            )
            for request, count in zip(batch, counts, strict=True)
        ]
        last = self.forward(chunks)
        for request, chunk in zip(batch, chunks, strict=True):
            self.cache.commit(request.held, chunk.tokens)
            self.schedule.served(request, len(chunk.tokens))
        self.computed_tokens += sum(counts)
        return last

    def _measure(self, requests: Sequence[Request], logits: Tensor) -> None:
        """Measure the answers of those requests that are about to sample their first token.

        Args:
            requests: all that are about to sample a token.
            logits: of that token, [R, vocabulary], without constraints.
        """
        asked = [
            row
            for row, request in enumerate(requests)
            if request.answer and not request.answer_logprobs
        ]
        if not asked:
            return
        asked.sort(key=lambda row: rank(requests[row].length, len(requests[row].answer) - 1))
        firsts = self._scored(logits[asked], [requests[row].answer[0] for row in asked])
        for row, first in zip(asked, firsts, strict=True):
            requests[row].answer_logprobs = [first]
        longer = [requests[row] for row in asked if len(requests[row].answer) > 1]
        if not longer:
            return
        assert isinstance(self.forward, EnginePass)  # `submit` refuses other answers
        chunks = [self._fork(request) for request in longer]
        rest = [token for request in longer for token in request.answer[1:]]
        found: list[float] = []
        for states in self.forward.states(chunks).split(MEASURED):
            part = rest[len(found) : len(found) + len(states)]
            found += self._scored(self.forward.logits(states), part)
        for request in longer:
            count = len(request.answer) - 1
            request.answer_logprobs += found[:count]
            found = found[count:]

    def _fork(self, request: Request) -> Chunk:
        """Return the answer's tokens that predict others, in place of the reply's first ones."""
        known = request.answer[:-1]
        return Chunk(known, request.held, places=request.placed(request.held.length, len(known)))

    def _scored(self, logits: Tensor, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of one token in each row of logits [N, vocabulary]."""
        wide = logits.to(self.network.wide_dtype)
        chosen = torch.tensor(tokens, device=wide.device).unsqueeze(1)
        return (wide.gather(1, chosen).squeeze(1) - wide.logsumexp(dim=1)).tolist()

    def _sample(self, requests: Sequence[Request], logits: Tensor) -> None:
        """Sample a token for each request from its logits [R, vocabulary]; overwrite these."""
        for row, request in enumerate(requests):
            if request.constraint is not None:
                keep_only(logits, row, request.constraint.allowed(request.completion))
        wide, device = self.network.wide_dtype, logits.device
        temperature = [r.sampling.temperature for r in requests]
        uniforms = [uniform(r.seed, len(r.completion)) for r in requests]
        sampled = sample(
            logits,
            torch.tensor(temperature, dtype=wide, device=device),
            torch.tensor(uniforms, dtype=wide, device=device),
        )
        numbers = (column.tolist() for column in sampled)
        for request, token, lp, nats in zip(requests, *numbers, strict=True):
            self._append(request, token, lp, nats)
            if request.thought is not None and request.finish is None:
                self._end_thought(request, request.thought.after(token))

    def _append(self, request: Request, token: int, logprob: float, entropy: float) -> None:
        """Add a token to a reply, which may finish it."""
        request.completion.append(token)
        request.logprobs.append(logprob)
        request.entropies.append(entropy)
        request.versions.append(self.version)
        if token in self.end_tokens or self._stopped(request):
            request.finish = Finish.STOP
        elif not self._room(request):
            request.finish = Finish.LENGTH

    def _room(self, request: Request) -> int:
        """Return how many tokens may still be added to a reply."""
        longest = request.sampling.max_tokens or self.context
        return min(longest - len(request.completion), self.context - request.length)

    def _end_thought(self, request: Request, closing: Sequence[int]) -> None:
        """Write the tokens that end a thought, unless the reply ends within them anyway."""
        if len(closing) >= self._room(request):
            return
        for token in closing:
            if request.finish is None:
                request.forced.append(len(request.completion))
                self._append(request, token, 0.0, 0.0)

    def _stopped(self, request: Request) -> bool:
        """Return whether the reply contains a stop string; it did not before its last token."""
        if not request.sampling.stop:
            return False
        assert self._text is not None
        if request.stop_detector is None:
            request.stop_detector = StopDetector(self._text, request.sampling.stop)
        return request.stop_detector.stops(request.completion[-1])
