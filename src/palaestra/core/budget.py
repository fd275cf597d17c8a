"""What an episode may spend, what it has spent, and the clock that counts its seconds.

A wall clock continues while a process is stopped, its container is frozen or its machine is too
busy to schedule it. A heartbeat thread detects this: of the time between two beats, at most
`MOST` counts. Deadlines for other processes use this clock too, so that none is blamed for a reply
that this process could not receive.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import Literal

from palaestra.core.outcome import Limit

BEAT = 0.1  # seconds between beats
MOST = 0.5  # the most seconds that count between two beats

Late = Literal["pass", "forfeit"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What an episode has spent so far; immutable, so a record can hold it."""

    turns: int = 0  # actions taken in the environment
    prompt_tokens: int = 0  # tokens read by models beyond those already cached
    sampled_tokens: int = 0  # tokens sampled by models
    seconds: float = 0.0  # wall-clock time since the reset
    tried: int = 0  # actions taken in trials, which are not among the turns


@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bounds of one episode; None means unlimited.

    `invalid_actions` bounds how many invalid actions in a row the environment may receive before
    the episode ends as the agent's own error. `total_tokens` bounds the tokens read and sampled
    together. A prompt that would leave no tokens for the reply is not sent to a model that exposes
    its tokens; for any other model, the excess is known only after the call.

    `turn_seconds` is for one of several players: the seconds in which it decides on an action. One
    that is late passes in that turn, if the environment has an action that does nothing for it, and
    otherwise, or with `late = "forfeit"`, it forfeits.
    """

    turns: int | None = None
    tokens: int | None = None  # sampled
    total_tokens: int | None = None  # read and sampled
    seconds: float | None = None  # in which this process ran
    invalid_actions: int | None = None
    tried: int | None = None  # in trials; one action more ends the episode
    turn_seconds: float | None = None
    late: Late = "pass"

    def exhausted(self, turns: int, sampled: int, seconds: float, read: int = 0) -> Limit | None:
        """Return the first limit that these turns, tokens and seconds reach, or None."""
        if self.turns is not None and turns >= self.turns:
            return Limit.TURNS
        if self.tokens is not None and sampled >= self.tokens:
            return Limit.TOKENS
        if self.total_tokens is not None and sampled + read >= self.total_tokens:
            return Limit.TOKENS
        if self.seconds is not None and seconds >= self.seconds:
            return Limit.SECONDS
        return None

    def within(self, other: Budget) -> Budget:
        """Return the budget that keeps both: the smaller of each two limits."""
        limits = {}
        for name in (one.name for one in fields(Budget) if one.name != "late"):
            given = [x for x in (getattr(self, name), getattr(other, name)) if x is not None]
            limits[name] = min(given, default=None)
        late: Late = "forfeit" if "forfeit" in (self.late, other.late) else "pass"
        return Budget(**limits, late=late)

    def tokens_left(self, sampled: int, read: int = 0) -> int | None:
        """Return how many more tokens may be sampled after these; None: any number."""
        left = [] if self.tokens is None else [self.tokens - sampled]
        if self.total_tokens is not None:
            left.append(self.total_tokens - sampled - read)
        return max(0, min(left)) if left else None


class Spending:
    """The running costs of an episode against its budget; the clock starts at construction."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        limits = budget.turns, budget.tokens, budget.total_tokens, budget.seconds
        self._unlimited = limits == (None,) * len(limits)
        self._turns = self._read = self._sampled = self._tried = 0  # as `Usage` counts them
        self._invalid = 0  # invalid actions in a row
        self._started, self._begun = time.monotonic(), ran()

    @property
    def sampled(self) -> int:
        """The tokens that models have sampled so far."""
        return self._sampled

    @property
    def usage(self) -> Usage:
        """The costs so far."""
        return Usage(self._turns, self._read, self._sampled, self._seconds, self._tried)

    @property
    def turns_left(self) -> int | None:
        """The number of actions that may still be taken; None: any number."""
        return None if self._budget.turns is None else max(0, self._budget.turns - self._turns)

    @property
    def tries_left(self) -> int | None:
        """The number of actions that trials may still take; None: any number."""
        return None if self._budget.tried is None else max(0, self._budget.tried - self._tried)

    def tokens_left(self, reading: int) -> int | None:
        """Return how many tokens may be sampled after `reading` more are read; None: any number."""
        return self._budget.tokens_left(self._sampled, self._read + reading)

    def at_once(self, most: int, reading: int | None, sampling: int | None) -> int:
        """Return how many calls may start together without spending more than sequential calls.

        Args:
            most: the number of calls requested; at least 1.
            reading: the number of tokens that each call reads; None: unknown.
            sampling: the number of tokens that each call may sample; None: any number.

        Returns:
            1 to `most`.
        """
        if reading is None and self._budget.total_tokens is not None:
            return 1
        for count in range(most, 1, -1):
            left = self.tokens_left(count * (reading or 0))
            if left is None or (sampling is not None and left >= count * sampling):
                return count
        return 1

    @property
    def limit(self) -> Limit | None:
        """The first limit that is reached, or None."""
        if self._unlimited:
            return None
        seconds = 0.0 if self._budget.seconds is None else ran() - self._begun
        return self._budget.exhausted(self._turns, self._sampled, seconds, self._read)

    @property
    def too_many_invalid(self) -> int | None:
        """The number of invalid actions in a row once it reaches the budget's bound; else None."""
        most = self._budget.invalid_actions
        return self._invalid if most is not None and self._invalid >= most else None

    def act(self, valid: bool) -> None:
        """Count an action."""
        self._turns += 1
        self._invalid = 0 if valid else self._invalid + 1

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


# ── the clock ────────────────────────────────────────────────────────────────


class Heartbeat:
    """A clock that counts the seconds in which this process ran."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last, self._total = clock(), 0.0

    def beat(self) -> float:
        """Return the seconds so far in which this process ran, as far as the beats show."""
        with self._lock:
            now = self._clock()
            self._total += min(now - self._last, MOST)
            self._last = now
            return self._total

    def beat_forever(self) -> None:
        """Beat until the process ends."""
        while True:
            time.sleep(BEAT)
            self.beat()


_lock = threading.Lock()
_heart: Heartbeat | None = None  # of this process, once `ran` was called


def ran() -> float:
    """Return the seconds in which this process ran since the first call; use only differences."""
    global _heart
    if _heart is None:
        with _lock:
            if _heart is None:
                _heart = Heartbeat()
                threading.Thread(target=_heart.beat_forever, name="heartbeat", daemon=True).start()
    return _heart.beat()


@asynccontextmanager
async def timeout(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Act like `asyncio.timeout`, but count only seconds in which this process ran."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def check(end: float) -> None:
        nonlocal timer
        left = end - ran()
        if left > 0:
            timer = loop.call_later(left, check, end)
        else:
            clock.reschedule(loop.time())

    async with asyncio.timeout(None) as clock:
        if seconds is not None:
            check(ran() + seconds)
        try:
            yield clock
        finally:
            if timer is not None:
                timer.cancel()
