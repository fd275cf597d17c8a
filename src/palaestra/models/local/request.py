"""A request: one reply to be sampled, as the engine sees it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from palaestra.core.message import Image
from palaestra.core.model import Finish, Sampling
from palaestra.models.local.cache import Past
from palaestra.models.local.decoding import StopDetector
from palaestra.models.local.lora import OWN
from palaestra.models.local.thought_limit import ThoughtLimit


class Constraint(Protocol):
    """A constraint on a reply, such as choices or a grammar."""

    def allowed(self, sampled: Sequence[int]) -> Sequence[int] | Tensor:
        """Return the tokens that may follow the sampled ones."""


@dataclass(slots=True, eq=False)
class Request:
    """One reply's state: it waits while `past` is None, then runs until `finish` is set."""

    tokens: list[int]  # the prompt; those of images as in `image_tokens`
    sampling: Sampling
    seed: int
    program: Hashable  # requests of equal programs belong together
    since: int  # the engine's clock when it began to wait
    constraint: Constraint | None = None  # None: any reply
    past: Past | None = None
    cached: int = 0  # prompt tokens that the cache held
    completion: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # of each token of the completion
    entropies: list[float] = field(default_factory=list)  # in nats, likewise
    versions: list[int] = field(default_factory=list)  # of the weights that sampled each token
    stop_detector: StopDetector | None = None  # if there are stop strings
    thought: ThoughtLimit | None = None  # if the reasoning is limited
    adapter: str | None = OWN  # of the network; None: the base alone
    images: Mapping[int, Image] = field(default_factory=dict)  # in the prompt, by their numbers
    places: Tensor | None = None  # rotary positions of the prompt, if not its indices, [3, N]
    forced: list[int] = field(default_factory=list)  # positions in the completion, not sampled
    answer: Sequence[int] = ()  # the known right reply, to be measured after the prompt
    answer_logprobs: list[float] = field(default_factory=list)  # of its tokens, once measured
    urgent: bool = False  # has waited so long that it goes first
    finish: Finish | None = None

    @property
    def held(self) -> Past:
        """The keys and values of a running request."""
        assert self.past is not None
        return self.past

    @property
    def length(self) -> int:
        """Number of prompt and sampled tokens."""
        return len(self.tokens) + len(self.completion)

    @property
    def reach(self) -> int:
        """Number of tokens that it needs blocks for: until the answer is measured, its as well."""
        unmeasured = 0 if self.answer_logprobs else max(0, len(self.answer) - 1)
        return self.length + unmeasured

    @property
    def left(self) -> int:
        """Number of tokens that are still to be run; 1 while it decodes."""
        return self.length - self.held.length

    def placed(self, start: int, count: int) -> Tensor | None:
        """Return the rotary positions [3, count] of tokens from `start` on; None: their indices."""
        if self.places is None:
            return None
        n = self.places.shape[1]
        own = self.places[:, start : start + count]
        if own.shape[1] == count:
            return own
        first = int(self.places.max()) + 1 + max(0, start - n)
        rest = torch.arange(first, first + count - own.shape[1], device=own.device)
        return torch.cat([own, rest.expand(len(own), -1)], dim=1)

    def known(self, start: int = 0) -> list[int]:
        """Return the tokens of prompt and completion from `start` on."""
        count = len(self.tokens)
        if start >= count:
            return self.completion[start - count :]
        return self.tokens[start:] + self.completion
