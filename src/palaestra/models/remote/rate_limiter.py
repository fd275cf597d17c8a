"""Rate limiter: bounds the requests that this process sends to one server.

It bounds the requests in flight, and the requests and tokens of any minute. The bound on requests
in flight adapts as TCP's window does. It grows by one with every good response until the server is
first overloaded. Each overload halves it; then it grows by one after as many good responses as it
allows requests.

Source: Jacobson 1988 (slow start); Chiu and Jain 1989 (additive increase, multiplicative decrease).

Requests go out in the order of arrival. A request that was rejected keeps its place in the queue.
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

START = 16  # initial bound on requests in flight, if no limit is given
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of a rate limiter; None means unbounded."""

    concurrency: int | None = None  # requests in flight; also the initial bound
    rpm: int | None = None  # requests in any minute
    tpm: int | None = None  # tokens of prompts and replies in any minute


class LoadSignal(Enum):
    """What an attempt's result says about the server's load."""

    GOOD = "the request was answered"
    OVERLOADED = "the server asked for fewer requests, or did not answer in time"
    NEITHER = "the request failed, or was cancelled, for reasons unrelated to load"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counters of a rate limiter so far."""

    limit: int  # current bound on requests in flight
    under_way: int  # requests in flight
    waiting: int  # requests in the queue
    sent: int  # each attempt counts
    good: int
    overloaded: int
    cuts: int  # how often the limit was halved
    most: int  # the most requests that were ever in flight
    prompt_tokens: int  # as the server reports them, of good responses
    sampled_tokens: int  # likewise


class RateLimiter:
    """The rate limiter of one server; one event loop uses it at a time."""

    def __init__(self, limits: Limits = Limits()) -> None:
        """Start with no request in flight."""
        self.limits = limits
        self._limit = limits.concurrency or START
        self._requests, self._tokens = MinuteWindow(limits.rpm), MinuteWindow(limits.tpm)
        self._arrivals = itertools.count()
        self._queue: list[tuple[int, Ticket]] = []  # a heap, by place in the queue
        self._closed_until = 0.0  # the server asked for a pause
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._streak = 0  # good responses since the limit last changed
        self._under_way = self._sent = self._good = self._overloaded = self._cuts = self._most = 0
        self._waiting = self._prompt = self._sampled = 0

    def arrive(self, tokens: int = 0) -> Ticket:
        """Return a place in the queue for one request.

        Args:
            tokens: expected number of prompt and reply tokens.
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

    # ── for tickets ──────────────────────────────────────────────────────────

    def queue(self, ticket: Ticket) -> None:
        """Queue a ticket.

        Raises:
            RuntimeError: another event loop uses this limiter.
        """
        self._adopt(asyncio.get_running_loop())
        heapq.heappush(self._queue, (ticket.place, ticket))
        self._waiting += 1
        self.admit()

    def abandon(self) -> None:
        """Drop a waiting ticket; those behind it may need fewer tokens."""
        self._waiting -= 1
        self.admit()

    def admit(self) -> None:
        """Admit the tickets that may go now, and schedule the admission of the next one."""
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

    def leave(self, verdict: LoadSignal, spent: WindowEntry, cuts: int, pause: float) -> None:
        """Record the end of a request.

        Args:
            verdict: what its result says about the server's load.
            spent: its entry in the token window.
            cuts: the number of cuts when it went out; results from before a cut change nothing.
            pause: seconds for which the server asked for no requests.
        """
        full = self._under_way >= self._limit  # otherwise a higher limit would not be used
        self._under_way -= 1
        if verdict is LoadSignal.GOOD:
            self._good += 1
            if full and cuts == self._cuts:
                self._grow()
        elif verdict is LoadSignal.OVERLOADED:
            self._overloaded += 1
            self._tokens.correct(spent, 0)
            if cuts == self._cuts:
                self._limit, self._streak = max(1, self._limit // 2), 0
                self._cuts += 1
        if pause:
            until = asyncio.get_running_loop().time() + pause
            self._closed_until = max(self._closed_until, until)
        self.admit()

    def account(self, spent: WindowEntry, prompt: int, sampled: int) -> None:
        """Correct a request's expected tokens to its actual ones."""
        self._prompt += prompt
        self._sampled += sampled
        if prompt + sampled:
            self._tokens.correct(spent, prompt + sampled)
            self.admit()

    # ── details ──────────────────────────────────────────────────────────────

    def _adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use that event loop from now on."""
        if loop is self._loop:
            return
        alive = self._loop is not None and not self._loop.is_closed()
        if alive and (self._waiting or self._under_way):
            raise RuntimeError("two event loops use one rate limiter; give each its own")
        self._loop, self._timer = loop, None
        self._queue.clear()
        self._waiting = self._under_way = 0  # drop what a closed loop left behind

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
    """A place in a rate limiter's queue, used by every attempt of one request."""

    def __init__(self, limiter: RateLimiter, place: int, tokens: int) -> None:
        """Use `RateLimiter.arrive`."""
        self.place, self.tokens = place, tokens
        self._limiter = limiter
        self._turn: asyncio.Future[None] | None = None
        self._spent, self._cuts = WindowEntry(0.0, 0), 0

    async def turn(self) -> None:
        """Wait until the request may go out; `leave` must follow."""
        self._turn = asyncio.get_running_loop().create_future()
        self._limiter.queue(self)
        try:
            await self._turn
        except asyncio.CancelledError:
            if self._turn.done() and not self._turn.cancelled():  # it was just admitted
                self.leave(LoadSignal.NEITHER)
            else:
                self._turn.cancel()
                self._limiter.abandon()
            raise

    def leave(self, verdict: LoadSignal, pause: float = 0.0) -> None:
        """End the attempt; `pause` is the number of seconds the server asked to wait."""
        self._limiter.leave(verdict, self._spent, self._cuts, pause)

    def account(self, prompt: int, sampled: int) -> None:
        """Record the actual tokens of prompt and reply; zeros if unknown."""
        self._limiter.account(self._spent, prompt, sampled)

    # ── for the rate limiter ─────────────────────────────────────────────────

    @property
    def waits(self) -> bool:
        """Whether it is still queued."""
        return self._turn is not None and not self._turn.done()

    def begin(self, spent: WindowEntry, cuts: int) -> None:
        """Let the attempt go out."""
        assert self._turn is not None
        self._spent, self._cuts = spent, cuts
        self._turn.set_result(None)


@dataclass(slots=True)
class WindowEntry:
    """One entry of a `MinuteWindow`."""

    time: float
    amount: int
    counts: bool = True  # false once it is older than a minute


class MinuteWindow:
    """A sliding window of one minute with an upper bound on what is spent in it."""

    def __init__(self, most: int | None) -> None:
        """Start empty; None means unbounded."""
        self._most = most
        self._entries: deque[WindowEntry] = deque()
        self._total = 0

    def free(self, amount: int, now: float) -> float:
        """Return when `amount` may be spent; an amount above the bound waits for an empty window.

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

    def spend(self, amount: int, now: float) -> WindowEntry:
        """Record what is spent now."""
        entry = WindowEntry(now, amount)
        if self._most is not None:
            self._entries.append(entry)
            self._total += amount
        return entry

    def correct(self, entry: WindowEntry, amount: int) -> None:
        """Change an entry's amount."""
        if self._most is not None and entry.counts:
            self._total += amount - entry.amount
        entry.amount = amount

    def _expire(self, entry: WindowEntry) -> None:
        entry.counts = False
        self._total -= entry.amount


_SHARED: WeakValueDictionary[tuple[str, Limits], RateLimiter] = WeakValueDictionary()


def shared_limiter(server: str, limits: Limits) -> RateLimiter:
    """Return this process's rate limiter for a server and limits; it lives while it is referenced.

    A server limits an account, not a role: an agent and a judge of the same model share a limiter.
    """
    limiter = _SHARED.get((server, limits))
    if limiter is None:
        limiter = _SHARED[server, limits] = RateLimiter(limits)
    return limiter


def expected_tokens(text: str, reply: int | None) -> int:
    """Return an estimate of a request's tokens: four characters per token, and the reply's limit.

    Args:
        text: the request as text.
        reply: the most tokens that the reply may have; None if unknown.
    """
    return math.ceil(len(text) / 4) + (reply or 0)
