"""What an episode may spend, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.core.outcome import Limit


@dataclass(frozen=True, slots=True)
class Usage:
    """What an episode has spent so far; immutable, so a record can hold it."""

    turns: int = 0  # actions taken in the environment
    prompt_tokens: int = 0  # tokens read by models beyond what they already held
    sampled_tokens: int = 0  # tokens sampled by models
    seconds: float = 0.0  # wall-clock time since the reset
    tried: int = 0  # actions taken in trials, which are not among the turns


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bounds of one episode; None means unlimited.

    `unparsed` bounds how many actions in a row may be unintelligible to the
    environment before the episode ends as the agent's own error. `total_tokens` bounds what is
    read and sampled together: a prompt that would leave nothing of it to answer with is not sent
    to a model that shows its tokens; any other model is known to have read too much afterwards.
    """

    turns: int | None = None
    tokens: int | None = None  # sampled
    total_tokens: int | None = None  # read and sampled
    seconds: float | None = None
    unparsed: int | None = None
    tried: int | None = None  # in trials; one action more ends the episode

    def exhausted(self, turns: int, sampled: int, seconds: float, read: int = 0) -> Limit | None:
        """The first limit that so many turns, tokens and seconds reach, or None."""
        if self.turns is not None and turns >= self.turns:
            return Limit.TURNS
        if self.tokens_left(sampled, read) == 0:
            return Limit.TOKENS
        if self.seconds is not None and seconds >= self.seconds:
            return Limit.SECONDS
        return None

    def tokens_left(self, sampled: int, read: int = 0) -> int | None:
        """How many tokens may still be sampled after so many; None: any number."""
        left = [] if self.tokens is None else [self.tokens - sampled]
        if self.total_tokens is not None:
            left.append(self.total_tokens - sampled - read)
        return max(0, min(left)) if left else None
