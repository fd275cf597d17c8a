"""The spending budget of a whole evaluation: tokens, money and time.

An evaluation that exhausts its budget stops and reports the finished part. Every model call is
counted when it is recorded, so the overspend is at most the calls in flight. Calls replayed after
an interruption are not counted again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass

from palaestra.core.episode import Episode, Event, Key
from palaestra.core.graph import Call
from palaestra.evaluation.statistics.costs import Prices, Spent, spent_on
from palaestra.rollout.runner import EpisodeStore


@dataclass(frozen=True, slots=True)
class SpendingBudget:
    """The total that a run may spend over all its processes; None: no limit."""

    tokens: int | None = None  # prompt and sampled tokens
    money: float | None = None  # in the currency of the prices
    seconds: float | None = None  # working time; pauses do not count

    def exhausted(self, spent: Spent, seconds: float) -> str | None:
        """Return a sentence about the limit that is reached; None if none is."""
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"its budget of {self.tokens} tokens is spent"
        if self.money is not None and (spent.money or 0.0) >= self.money:
            return f"its budget of {self.money:g} in money is spent"
        if self.seconds is not None and seconds >= self.seconds:
            return f"its budget of {self.seconds:g} seconds is spent"
        return None


class Meter:
    """An episode store that counts spending, with a clock of the working time."""

    def __init__(
        self,
        store: EpisodeStore,
        prices: Prices,
        budget: SpendingBudget,
        spent: Spent,
        seconds: float,
    ) -> None:
        """Continue from `spent` and `seconds`, which earlier processes used."""
        self.spent = spent
        self._store, self._prices, self._budget = store, prices, budget
        self._before, self._since = seconds, time.monotonic()
        self._changed = asyncio.Event()

    @property
    def seconds(self) -> float:
        """The working time so far."""
        return self._before + time.monotonic() - self._since

    @property
    def over(self) -> str | None:
        """Why nothing more may be spent; None while the budget lasts."""
        return self._budget.exhausted(self.spent, self.seconds)

    async def wait(self, seconds: float) -> None:
        """Wait until the time has passed or the budget is spent."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def exclude(self, seconds: float) -> None:
        """Exclude a pause from the working time."""
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
