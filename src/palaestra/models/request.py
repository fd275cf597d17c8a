"""One reply to be sampled, as the engine sees it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from palaestra.core.model import Finish, Sampling
from palaestra.models.cache import Past
from palaestra.models.decoding import Said


class Held(Protocol):
    """What a reply may be."""

    def allowed(self, said: Sequence[int]) -> Sequence[int] | Tensor:
        """The tokens that may follow what has been said of it."""


@dataclass(slots=True, eq=False)
class Request:
    """Waits while `past` is None, runs while it is not; `finish` is set when it is complete."""

    tokens: list[int]  # the prompt
    sampling: Sampling
    seed: int
    program: Hashable  # requests of equal programs belong together
    since: int  # the engine's clock when it began to wait
    held_to: Held | None = None  # what the reply may be; None: anything
    past: Past | None = None
    cached: int = 0  # prompt tokens that the cache held
    completion: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # of each token of the completion
    entropies: list[float] = field(default_factory=list)  # in nats, likewise
    versions: list[int] = field(default_factory=list)  # of the weights that sampled it
    said: Said | None = None  # in words, where a stop string is looked for
    urgent: bool = False  # has waited so long that it goes first
    finish: Finish | None = None

    @property
    def held(self) -> Past:
        """The keys and values of a running request."""
        assert self.past is not None
        return self.past

    @property
    def length(self) -> int:
        """Tokens of the prompt and of what is sampled so far."""
        return len(self.tokens) + len(self.completion)

    @property
    def left(self) -> int:
        """Tokens of a running request that are still to be run; 1 while it decodes."""
        return self.length - self.held.length

    def known(self, start: int = 0) -> list[int]:
        """The tokens of prompt and completion from `start` on."""
        count = len(self.tokens)
        if start >= count:
            return self.completion[start - count :]
        return self.tokens[start:] + self.completion
