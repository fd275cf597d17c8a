"""A pace: how fast one server is asked, by all of this process who ask it.

At most so many requests are under way at once, and so many requests and tokens go out in any
minute. How many may be under way adapts to the server as TCP does: one more with every good
answer until the server is first overloaded, then half as many at each overload and one more
after as many good answers as may be under way.

Source: Jacobson 1988 (slow start); Chiu and Jain 1989 (additive increase, multiplicative decrease).

Turns come in the order of arrival. Who was turned away keeps the place that it had.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from weakref import WeakValueDictionary

START = 16  # requests under way at first, where no limit is named
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of a pace; None means none."""

    concurrency: int | None = None  # requests under way at once; also how many there are at first
    rpm: int | None = None  # requests in any minute
    tpm: int | None = None  # tokens of prompts and replies in any minute


class Verdict(Enum):
    """What a request says about the pace."""

    GOOD = "it was answered"
    OVERLOADED = "the server could not bear it: asked for fewer, or did not answer in time"
    NEITHER = "it failed, or was cancelled, for reasons that have nothing to do with the pace"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a pace has seen so far."""

    limit: int  # requests that may be under way at once, as things stand
    under_way: int
    waiting: int  # for their turn
    sent: int  # each attempt counts
    good: int
    overloaded: int
    cuts: int  # how often the limit was halved
    most: int  # requests that were under way at once
    prompt_tokens: int  # as the server tells, of good answers
    sampled_tokens: int  # likewise


class Pace:
    """The pace of one server; one event loop uses it at a time."""

    def __init__(self, limits: Limits = Limits()) -> None:
        """Nothing is under way yet."""
        self.limits = limits
        self._limit = limits.concurrency or START
        self._requests, self._tokens = Minute(limits.rpm), Minute(limits.tpm)
        self._arrivals = itertools.count()
        self._queue: list[tuple[int, Ticket]] = []  # a heap, by place
        self._closed_until = 0.0  # the server asked for a pause
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._streak = 0  # good answers since the limit last changed
        self._under_way = self._sent = self._good = self._overloaded = self._cuts = self._most = 0
        self._waiting = self._prompt = self._sampled = 0

    def arrive(self, tokens: int = 0) -> Ticket:
        """A place in the queue, for one request.

        Args:
            tokens: how many its prompt and its reply are expected to have.
        """
        return Ticket(self, next(self._arrivals), tokens)

    @property
    def traffic(self) -> Traffic:
        """The counters."""
        return Traffic(
            limit=self._limit,
            under_way=self._under_way,
            waiting=self._waiting,
            sent=self._sent,
            good=self._good,
            overloaded=self._overloaded,
            cuts=self._cuts,
            most=self._most,
            prompt_tokens=self._prompt,
            sampled_tokens=self._sampled,
        )

    # ── what tickets use ─────────────────────────────────────────────────────

    def queue(self, ticket: Ticket) -> None:
        """Let it wait for its turn.

        Raises:
            RuntimeError: another event loop is at it.
        """
        self._adopt(asyncio.get_running_loop())
        heapq.heappush(self._queue, (ticket.place, ticket))
        self._waiting += 1
        self.admit()

    def abandon(self) -> None:
        """One that waited does so no more: those behind it may need less."""
        self._waiting -= 1
        self.admit()

    def admit(self) -> None:
        """Let in whoever may go now; see to it that the next one is let in when it may."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._queue and self._under_way < self._limit:
            ticket = self._queue[0][1]
            if not ticket.waits:  # it was cancelled
                heapq.heappop(self._queue)
                continue
            start = max(
                self._closed_until,
                self._requests.free(1, now),
                self._tokens.free(ticket.tokens, now),
            )
            if start > now:
                self._wake(loop, start)
                return
            heapq.heappop(self._queue)
            self._waiting -= 1
            self._under_way += 1
            self._sent += 1
            self._most = max(self._most, self._under_way)
            self._requests.spend(1, now)
            ticket.begin(self._tokens.spend(ticket.tokens, now), self._cuts)

    def leave(self, verdict: Verdict, spent: Spent, cuts: int, pause: float) -> None:
        """A request is over.

        Args:
            verdict: what it says about the pace.
            spent: its entry among the tokens.
            cuts: how many there had been when it went out; older news change nothing.
            pause: seconds for which the server asked to be left alone.
        """
        full = self._under_way >= self._limit  # else more would not have gone out anyway
        self._under_way -= 1
        if verdict is Verdict.GOOD:
            self._good += 1
            if full and cuts == self._cuts:
                self._grow()
        elif verdict is Verdict.OVERLOADED:
            self._overloaded += 1
            self._tokens.correct(spent, 0)
            if cuts == self._cuts:
                self._limit, self._streak = max(1, self._limit // 2), 0
                self._cuts += 1
        if pause:
            until = asyncio.get_running_loop().time() + pause
            self._closed_until = max(self._closed_until, until)
        self.admit()

    def account(self, spent: Spent, prompt: int, sampled: int) -> None:
        """What a request has really cost in tokens."""
        self._prompt += prompt
        self._sampled += sampled
        if prompt + sampled:
            self._tokens.correct(spent, prompt + sampled)
            self.admit()

    # ── details ──────────────────────────────────────────────────────────────

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve that loop from now on."""
        if loop is self._loop:
            return
        alive = self._loop is not None and not self._loop.is_closed()
        if alive and (self._waiting or self._under_way):
            raise RuntimeError("two event loops use one pace; give each its own")
        self._loop, self._timer = loop, None
        self._queue.clear()
        self._waiting = self._under_way = 0  # what a loop left behind when it was closed

    def _grow(self) -> None:
        self._streak += 1
        if self._streak >= (self._limit if self._cuts else 1):
            self._limit, self._streak = self._limit + 1, 0
        if self.limits.concurrency is not None:
            self._limit = min(self._limit, self.limits.concurrency)

    def _wake(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self.admit)


class Ticket:
    """A place in the queue of a pace; every attempt of a request takes its turn with it."""

    def __init__(self, pace: Pace, place: int, tokens: int) -> None:
        """Use `Pace.arrive`."""
        self.place, self.tokens = place, tokens
        self._pace = pace
        self._turn: asyncio.Future[None] | None = None
        self._spent, self._cuts = Spent(0.0, 0), 0

    async def turn(self) -> None:
        """Wait until the request may go out; `leave` must follow."""
        self._turn = asyncio.get_running_loop().create_future()
        self._pace.queue(self)
        try:
            await self._turn
        except asyncio.CancelledError:
            if self._turn.done() and not self._turn.cancelled():  # its turn had just come
                self.leave(Verdict.NEITHER)
            else:
                self._turn.cancel()
                self._pace.abandon()
            raise

    def leave(self, verdict: Verdict, pause: float = 0.0) -> None:
        """The attempt is over; `pause` is for how many seconds the server asked to be left."""
        self._pace.leave(verdict, self._spent, self._cuts, pause)

    def account(self, prompt: int, sampled: int) -> None:
        """Tell how many tokens the prompt and the reply really had; zeros: it is not known."""
        self._pace.account(self._spent, prompt, sampled)

    # ── what the pace uses ───────────────────────────────────────────────────

    @property
    def waits(self) -> bool:
        """Whether its turn is still to come."""
        return self._turn is not None and not self._turn.done()

    def begin(self, spent: Spent, cuts: int) -> None:
        """Its turn has come."""
        assert self._turn is not None
        self._spent, self._cuts = spent, cuts
        self._turn.set_result(None)


@dataclass(slots=True)
class Spent:
    """One entry of a minute."""

    time: float
    amount: int
    counts: bool = True  # it is not older than a minute


class Minute:
    """What was spent in the last minute, against an upper bound that holds for any minute."""

    def __init__(self, most: int | None) -> None:
        """Nothing is spent yet; with None, anything may be."""
        self._most = most
        self._entries: deque[Spent] = deque()
        self._total = 0

    def free(self, amount: int, now: float) -> float:
        """When `amount` may be spent; more than may ever be is let through when all else is over.

        Times are those of the event loop, in seconds.
        """
        if self._most is None:
            return now
        while self._entries and self._entries[0].time + MINUTE <= now:
            self._expire(self._entries.popleft())
        left = self._total
        if left == 0 or left + amount <= self._most:
            return now
        for entry in self._entries:
            left -= entry.amount
            if left == 0 or left + amount <= self._most:
                return entry.time + MINUTE
        raise AssertionError("the entries make up the total")

    def spend(self, amount: int, now: float) -> Spent:
        """Enter what is spent now."""
        entry = Spent(now, amount)
        if self._most is not None:
            self._entries.append(entry)
            self._total += amount
        return entry

    def correct(self, entry: Spent, amount: int) -> None:
        """It was `amount` that was spent then."""
        if self._most is not None and entry.counts:
            self._total += amount - entry.amount
        entry.amount = amount

    def _expire(self, entry: Spent) -> None:
        entry.counts = False
        self._total -= entry.amount


_SHARED: WeakValueDictionary[tuple[str, Limits], Pace] = WeakValueDictionary()


def shared(server: str, limits: Limits) -> Pace:
    """The one pace of this process for that server and those limits, while anyone holds it.

    A server limits an account, not a role: agent and judge that are the same model share a pace.
    """
    pace = _SHARED.get((server, limits))
    if pace is None:
        pace = _SHARED[server, limits] = Pace(limits)
    return pace


def expected_tokens(text: str, reply: int) -> int:
    """A guess at the tokens of a request, as servers guess before they answer.

    Args:
        text: the request in words.
        reply: the most tokens that the reply may have.
    """
    return math.ceil(len(text) / 4) + reply
