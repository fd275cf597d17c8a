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


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bounds of one episode; None means unlimited.

    `unparsed` bounds how many actions in a row may be unintelligible to the
    environment before the episode ends as the agent's own error.
    """

    turns: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    unparsed: int | None = None

    def exhausted(self, turns: int, sampled: int, seconds: float) -> Limit | None:
        """The first limit that so many turns, sampled tokens and seconds reach, or None."""
        if self.turns is not None and turns >= self.turns:
            return Limit.TURNS
        if self.tokens is not None and sampled >= self.tokens:
            return Limit.TOKENS
        if self.seconds is not None and seconds >= self.seconds:
            return Limit.SECONDS
        return None

    def tokens_left(self, sampled: int) -> int | None:
        """How many tokens may still be sampled after `sampled` of them; None: any number."""
        return None if self.tokens is None else max(0, self.tokens - sampled)
