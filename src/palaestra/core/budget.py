"""What an episode may spend, and what it has spent."""

from __future__ import annotations

import time
from dataclasses import dataclass

from palaestra.core.heartbeat import ran
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
    seconds: float | None = None  # in which this process ran
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


class Spending:
    """What an episode spends while it is lived, against its budget; the clock runs from now on."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._turns = self._read = self._sampled = self._tried = 0  # as `Usage` counts them
        self._unparsed = 0  # actions in a row that were not understood
        self._started, self._begun = time.monotonic(), ran()

    @property
    def usage(self) -> Usage:
        """All of it so far."""
        return Usage(self._turns, self._read, self._sampled, self._seconds, self._tried)

    @property
    def turns_left(self) -> int | None:
        """How many actions may still be taken; None: any number."""
        return None if self._budget.turns is None else max(0, self._budget.turns - self._turns)

    @property
    def tries_left(self) -> int | None:
        """How many actions in trials may still be taken; None: any number."""
        return None if self._budget.tried is None else max(0, self._budget.tried - self._tried)

    def tokens_left(self, reading: int) -> int | None:
        """How many tokens may be sampled after so many more are read; None: any number."""
        return self._budget.tokens_left(self._sampled, self._read + reading)

    def at_once(self, most: int, reading: int | None, sampling: int) -> int:
        """How many calls may be begun together without spending more than one after the other.

        Args:
            most: how many are wanted; at least 1.
            reading: how many tokens each of them reads; None: unknown.
            sampling: how many tokens each of them may sample.

        Returns:
            1 to `most`.
        """
        if reading is None and self._budget.total_tokens is not None:
            return 1
        for count in range(most, 1, -1):
            left = self.tokens_left(count * (reading or 0))
            if left is None or left >= count * sampling:
                return count
        return 1

    @property
    def limit(self) -> Limit | None:
        """The first limit that is reached, or None."""
        seconds = ran() - self._begun
        return self._budget.exhausted(self._turns, self._sampled, seconds, self._read)

    @property
    def misunderstood(self) -> int | None:
        """How many actions in a row were not understood, where those are too many; else None."""
        most = self._budget.unparsed
        return self._unparsed if most is not None and self._unparsed >= most else None

    def act(self, understood: bool) -> None:
        """Count an action."""
        self._turns += 1
        self._unparsed = 0 if understood else self._unparsed + 1

    def call(self, read: int, sampled: int) -> None:
        """Count the tokens of a model call."""
        self._read += read
        self._sampled += sampled

    def attempt(self) -> None:
        """Count an action of a trial."""
        self._tried += 1

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started
