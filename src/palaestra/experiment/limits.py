"""The limits of a whole evaluation: tokens, money and time, after which it reports what is done.

Every model call is counted when it is recorded, so what is spent beyond a limit is at most the
calls under way when it is reached. Calls replayed after an interruption were paid for before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass

from palaestra.core.episode import Episode, Key
from palaestra.core.graph import Call
from palaestra.core.journal import Event
from palaestra.evaluation.costs import Prices, Spent, spent_on
from palaestra.rollout.runner import EpisodeStore


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a run may spend in all, whatever number of processes work on it; None: anything."""

    tokens: int | None = None  # read and sampled
    money: float | None = None  # in the currency of the prices
    seconds: float | None = None  # of work; pauses are free

    def spent_up(self, spent: Spent, seconds: float) -> str | None:
        """Which limit so much has reached, in words; None: there is some left."""
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"its budget of {self.tokens} tokens is spent"
        if self.money is not None and (spent.money or 0.0) >= self.money:
            return f"its budget of {self.money:g} in money is spent"
        if self.seconds is not None and seconds >= self.seconds:
            return f"its budget of {self.seconds:g} seconds is spent"
        return None


class Meter:
    """A store of episodes that counts what is spent, and a clock that runs while there is work."""

    def __init__(
        self,
        store: EpisodeStore,
        prices: Prices,
        allowance: Allowance,
        spent: Spent,
        seconds: float,
    ) -> None:
        """Count on from `spent` and `seconds`, which earlier processes used."""
        self.spent = spent
        self._store, self._prices, self._allowance = store, prices, allowance
        self._before, self._since = seconds, time.monotonic()
        self._changed = asyncio.Event()

    @property
    def seconds(self) -> float:
        """Of work so far."""
        return self._before + time.monotonic() - self._since

    @property
    def over(self) -> str | None:
        """Why no more may be spent; None: go on."""
        return self._allowance.spent_up(self.spent, self.seconds)

    async def wait(self, seconds: float) -> None:
        """Until so much time has passed, or nothing is left to spend."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def rest(self, seconds: float) -> None:
        """Leave so much time out of the account."""
        self._before -= seconds

    # ── as a store of episodes ───────────────────────────────────────────────

    def append(self, key: Key, event: Event) -> Awaitable[None] | None:
        if isinstance(event, Call):
            self.spent += spent_on(event, self._prices)
            if self.over is not None:
                self._changed.set()
        return self._store.append(key, event)

    def past(self, key: Key) -> list[Event]:
        return self._store.past(key)

    def forget(self, key: Key) -> None:
        self._store.forget(key)

    def episode(self, key: Key) -> Episode | None:
        return self._store.episode(key)

    def finish(self, episode: Episode) -> Awaitable[None] | None:
        return self._store.finish(episode)
