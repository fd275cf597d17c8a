"""The resident engine: replies for many sessions at once, from one copy of the weights.

Each step runs one batch: the next token of every reply under way, together with
the new prompt tokens of waiting requests (continuous batching; Yu et al. 2022).
Prompts longer than the step's budget are read in chunks. A request whose prefix
another request of the same step is about to compute waits one step and copies it.

Sampling draws one uniform number per token from a hash of (request seed, position),
so a reply depends on its prompt, its seed and the weights, not on its neighbours
(up to the rounding of differently shaped matrix products).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.core.errors import ContextTooLong
from palaestra.core.model import Finish, Sampling
from palaestra.core.session import derive_seed
from palaestra.models.cache import KeyValueCache, Slot, common_prefix
from palaestra.models.network import DecoderNetwork

WORTH_WAITING = 16  # tokens that another request must be about to compute for us to wait


@dataclass(slots=True, eq=False)
class Request:
    """One reply to be sampled; `finish` is set when it is complete."""

    tokens: list[int]
    sampling: Sampling
    seed: int
    slot: Slot | None = None
    cached: int = 0  # prompt tokens that the cache held
    completion: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def place(self) -> Slot:
        """The slot of a running request."""
        assert self.slot is not None
        return self.slot


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
    ) -> None:
        self.network, self.end_tokens = network, end_tokens
        self.context = min(context, network.config.max_position_embeddings)
        self.step_tokens = step_tokens
        self.cache = KeyValueCache(network, slots, self.context)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.computed_tokens = 0  # over the engine's life, prompt and sampled

    def submit(self, tokens: Sequence[int], sampling: Sampling, seed: int) -> Request:
        """Queue one request.

        Raises:
            ContextTooLong: the prompt and one token do not fit the context.
        """
        if len(tokens) >= self.context:
            raise ContextTooLong(
                f"a prompt of {len(tokens)} tokens leaves no room in a context of {self.context}"
            )
        request = Request(list(tokens), sampling, seed)
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

    def clear(self) -> None:
        """Forget all keys and values: the weights have changed."""
        self.cache.clear()

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Run one batch; returns the requests that finished."""
        self._admit()
        batch, chunks = self._batch()
        if not batch:
            return []
        last = self._forward(batch, chunks)
        ready = [i for i, r in enumerate(batch) if len(r.place.tokens) == _length(r)]
        self._sample([batch[i] for i in ready], last[ready])
        finished = [r for r in self.running if r.finish is not None]
        self.running = [r for r in self.running if r.finish is None]
        for request in finished:
            self._release(request)
        return finished

    def _release(self, request: Request) -> None:
        if request.slot is not None:
            request.slot.busy = False
            request.slot = None

    def _admit(self) -> None:
        """Give slots to waiting requests, unless waiting a step saves computing a prefix."""
        budget = self.step_tokens - sum(_length(r) - len(r.place.tokens) for r in self.running)
        fresh: list[Request] = []
        later: list[Request] = []
        for request in self.waiting:
            if budget <= 0 or self._worth_waiting(request, fresh):
                later.append(request)
                continue
            slot = self.cache.acquire(request.tokens)
            if slot is None:
                later.append(request)
                continue
            request.slot, request.cached = slot, len(slot.tokens)
            budget -= len(request.tokens) - request.cached
            fresh.append(request)
            self.running.append(request)
        self.waiting = later

    def _worth_waiting(self, request: Request, fresh: Sequence[Request]) -> bool:
        if not fresh:
            return False
        soon = max(common_prefix(r.tokens, request.tokens) for r in fresh)
        if soon < WORTH_WAITING:
            return False
        known, _ = self.cache.longest_known(request.tokens)
        return soon - known >= WORTH_WAITING

    def _batch(self) -> tuple[list[Request], list[list[int]]]:
        """The requests of this step and the tokens that each one runs; single tokens first."""
        budget = self.step_tokens
        batch: list[Request] = []
        chunks: list[list[int]] = []
        for request in sorted(self.running, key=lambda r: _length(r) - len(r.place.tokens) > 1):
            have = len(request.place.tokens)
            chunk = (request.tokens + request.completion)[have : have + max(budget, 0)]
            if not chunk:
                continue
            budget -= len(chunk)
            batch.append(request)
            chunks.append(chunk)
        return batch, chunks

    def _forward(self, batch: list[Request], chunks: list[list[int]]) -> Tensor:
        """Run the chunks; returns the hidden state [B, width] of each chunk's last token."""
        device = self.network.device
        starts = [len(request.place.tokens) for request in batch]
        self.cache.reserve(max(s + len(c) for s, c in zip(starts, chunks, strict=True)))
        attend = CachedAttention(
            self.cache, [r.place.index for r in batch], starts, [len(c) for c in chunks], device
        )
        tokens = torch.tensor([t for chunk in chunks for t in chunk], device=device)
        x = self.network.run(self.network.embed(tokens), attend.positions, attend)
        for request, chunk in zip(batch, chunks, strict=True):
            request.place.tokens.extend(chunk)
        self.computed_tokens += len(tokens)
        ends = torch.tensor([len(c) for c in chunks], device=device).cumsum(0) - 1
        return x[ends]

    def _sample(self, requests: list[Request], hidden: Tensor) -> None:
        if not requests:
            return
        logits = self.network.logits(hidden).float()
        temperature = torch.tensor([r.sampling.temperature for r in requests], device=logits.device)
        greedy = temperature == 0
        logprobs = F.log_softmax(logits / temperature.masked_fill(greedy, 1.0).unsqueeze(1), dim=-1)
        uniform = torch.tensor([_uniform(r) for r in requests], device=logits.device)
        cumulative = logprobs.exp().cumsum(dim=-1)
        drawn = torch.searchsorted(cumulative, (uniform * cumulative[:, -1]).unsqueeze(1))
        choice = drawn.squeeze(1).clamp(max=logits.shape[1] - 1)
        choice = torch.where(greedy, logits.argmax(dim=-1), choice)
        chosen = logprobs.gather(1, choice.unsqueeze(1)).squeeze(1)
        for request, token, lp in zip(requests, choice.tolist(), chosen.tolist(), strict=True):
            request.completion.append(token)
            request.logprobs.append(lp)
            if token in self.end_tokens:
                request.finish = Finish.STOP
            elif (
                len(request.completion) >= request.sampling.max_tokens
                or _length(request) >= self.context
            ):
                request.finish = Finish.LENGTH


class CachedAttention:
    """Attention of one step's tokens over the cache; writes their keys and values first.

    Tokens lie flat, request after request. Requests that run a single token are
    attended together without padding, the others padded to the longest of them.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        slots: list[int],
        starts: list[int],
        counts: list[int],
        device: torch.device,
    ) -> None:
        self.cache = cache
        count = torch.tensor(counts, device=device)
        start = torch.tensor(starts, device=device)
        slot = torch.tensor(slots, device=device)
        row = torch.repeat_interleave(torch.arange(len(counts), device=device), count)
        offset = torch.arange(len(row), device=device) - (count.cumsum(0) - count)[row]
        self.positions = start[row] + offset
        self.slot_of_token = slot[row]
        # leading ones only: a prompt that the budget cut to one token may stand last
        self.singles = next((i for i, n in enumerate(counts) if n > 1), len(counts))
        s = self.singles
        self.groups: list[_Group] = []
        if s:
            self.groups.append(_Group(cache, slot[:s], start[:s], count[:s]))
        if s < len(counts):
            places = (row[s:] - s, offset[s:])
            self.groups.append(_Group(cache, slot[s:], start[s:], count[s:], places))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slot_of_token, :, self.positions] = k
        values[self.slot_of_token, :, self.positions] = v
        if len(self.groups) == 1:
            return self.groups[0](q, keys, values)
        s = self.singles
        return torch.cat([self.groups[0](q[:s], keys, values), self.groups[1](q[s:], keys, values)])


class _Group:
    """Requests attended together: rows of up to `longest` queries each.

    `places` holds the row and the offset of each flat query; None where each row has one.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        slots: Tensor,
        starts: Tensor,
        counts: Tensor,
        places: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.slots, self.places, self.share = slots, places, cache.share
        self.longest, self.reach = int(counts.max()), int((starts + counts).max())
        query = starts.unsqueeze(1) + torch.arange(self.longest, device=starts.device)
        seen = torch.arange(self.reach, device=starts.device) <= query.unsqueeze(-1)
        zero = torch.zeros((), dtype=cache.keys.dtype, device=starts.device)
        mask = torch.where(seen, zero, float("-inf"))  # [rows, longest, reach]
        self.mask = mask.repeat(1, self.share, 1).unsqueeze(1)

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        heads, d = q.shape[1:]
        rows, t, share = len(self.slots), self.longest, self.share
        k = keys[:, :, : self.reach].index_select(0, self.slots)
        v = values[:, :, : self.reach].index_select(0, self.slots)
        if self.places is not None:
            padded = q.new_zeros(rows, t, heads, d)
            padded[self.places] = q
            q = padded
        # the query heads that share a key head become further queries of it
        q = q.view(rows, t, -1, share, d).permute(0, 2, 3, 1, 4).reshape(rows, -1, share * t, d)
        if q.is_cuda:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        else:  # plain products: twice as fast here as torch's fused kernel for CPUs
            scores = torch.matmul(q, k.mT).mul_(d**-0.5).add_(self.mask)
            out = scores.softmax(dim=-1) @ v
        out = out.view(rows, -1, share, t, d).permute(0, 3, 1, 2, 4).reshape(rows, t, heads, d)
        return out[:, 0] if self.places is None else out[self.places]


def _length(request: Request) -> int:
    """Tokens of the prompt and of what is sampled so far."""
    return len(request.tokens) + len(request.completion)


def _uniform(request: Request) -> float:
    return derive_seed(request.seed, len(request.completion)) / 2**63
