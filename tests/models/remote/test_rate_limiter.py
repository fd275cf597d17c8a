"""Rate limiters: laws in virtual time, and hundreds of sessions against a small server."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import user
from palaestra.core.model import Generation, Prompt, Sampling
from palaestra.models.remote.rate_limiter import (
    MINUTE,
    START,
    Limits,
    LoadSignal,
    RateLimiter,
    shared_limiter,
)
from palaestra.models.remote.remote_model import RemoteModel
from tests.models.crowded import Crowded, Mood, crowded

T = TypeVar("T")
HASTY = {"attempts": 10, "timeout": 20.0}


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next scheduled event."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        return runner.run(work)


def now() -> float:
    return asyncio.get_running_loop().time()


# ── laws, in virtual time ────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 90), st.integers(0, 600)), max_size=40
    ),
    concurrency=st.integers(1, 5),
    rpm=st.integers(1, 10),
    tpm=st.integers(100, 1000),
)
def test_no_limit_is_ever_exceeded_and_no_one_is_forgotten(
    arrivals: list[tuple[float, float, int]], concurrency: int, rpm: int, tpm: int
) -> None:
    limiter = RateLimiter(Limits(concurrency, rpm, tpm))
    sent: list[tuple[float, int]] = []

    async def ask(arrival: float, takes: float, tokens: int) -> None:
        await asyncio.sleep(arrival)
        ticket = limiter.arrive(tokens)
        await ticket.turn()
        assert limiter.traffic.under_way <= concurrency
        sent.append((now(), tokens))
        await asyncio.sleep(takes)
        ticket.leave(LoadSignal.GOOD)

    async def everyone() -> None:
        await asyncio.gather(*(ask(*arrival) for arrival in arrivals))

    at_once(everyone())
    assert len(sent) == len(arrivals) == limiter.traffic.good
    for start, _ in sent:
        minute = [tokens for time, tokens in sent if start <= time < start + MINUTE]
        assert len(minute) <= rpm
        # a request above the limit goes out when the window is empty
        assert sum(minute) <= max(tpm, max(minute))


def test_turns_come_in_the_order_of_arrival() -> None:
    served: list[int] = []

    async def ask(limiter: RateLimiter, number: int) -> None:
        ticket = limiter.arrive()
        await asyncio.sleep(random.Random(number).random())  # a late caller keeps its place
        await ticket.turn()
        served.append(number)
        await asyncio.sleep(2.0)
        ticket.leave(LoadSignal.GOOD)

    async def everyone() -> None:
        limiter = RateLimiter(Limits(concurrency=1))
        blocker = limiter.arrive()
        await blocker.turn()
        asks = [asyncio.create_task(ask(limiter, number)) for number in range(20)]
        await asyncio.sleep(5.0)
        blocker.leave(LoadSignal.GOOD)
        await asyncio.gather(*asks)

    at_once(everyone())
    assert served == list(range(20))


def test_who_was_turned_away_goes_before_who_came_later() -> None:
    served: list[str] = []

    async def everyone() -> None:
        limiter = RateLimiter(Limits(concurrency=1))
        first, second, third = limiter.arrive(), limiter.arrive(), limiter.arrive()
        await first.turn()
        others = [
            asyncio.create_task(go("second", second)),
            asyncio.create_task(go("third", third)),
        ]
        await asyncio.sleep(0)
        first.leave(LoadSignal.OVERLOADED)
        again = asyncio.create_task(go("first", first))
        await asyncio.gather(again, *others)

    async def go(name: str, ticket: Any) -> None:
        await ticket.turn()
        served.append(name)
        await asyncio.sleep(1.0)
        ticket.leave(LoadSignal.GOOD)

    at_once(everyone())
    assert served == ["second", "first", "third"]


@settings(max_examples=40, deadline=None)
@given(cancelled=st.sets(st.integers(0, 19)), moment=st.floats(0, 12))
def test_who_is_cancelled_leaves_its_slot_to_others(cancelled: set[int], moment: float) -> None:
    limiter = RateLimiter(Limits(concurrency=2, rpm=1000))
    served: set[int] = set()

    async def ask(number: int) -> None:
        ticket = limiter.arrive()
        await ticket.turn()
        try:
            await asyncio.sleep(1.0)
            served.add(number)
        finally:
            ticket.leave(LoadSignal.GOOD)

    async def everyone() -> None:
        tasks = [asyncio.create_task(ask(number)) for number in range(20)]
        await asyncio.sleep(moment)
        for number in cancelled:
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    at_once(everyone())
    assert served >= set(range(20)) - cancelled
    assert (limiter.traffic.under_way, limiter.traffic.waiting) == (0, 0)


def serve(limiter: RateLimiter, most: int, requests: int, turned_away: list[int]) -> None:
    """Send `requests` concurrent requests to a server with capacity `most`."""
    taken = asyncio.Semaphore(most)

    async def ask() -> None:
        ticket = limiter.arrive()
        while True:
            await ticket.turn()
            if not taken.locked():
                async with taken:
                    await asyncio.sleep(1.0)
                return ticket.leave(LoadSignal.GOOD)
            ticket.leave(LoadSignal.OVERLOADED)
            turned_away.append(limiter.traffic.limit)
            await asyncio.sleep(1.0)

    async def everyone() -> None:
        await asyncio.gather(*(ask() for _ in range(requests)))

    at_once(everyone())


@settings(max_examples=15, deadline=None)
@given(most=st.integers(1, 100))
@pytest.mark.slow
def test_the_limit_settles_near_what_the_server_bears(most: int) -> None:
    limiter, turned_away = RateLimiter(), list[int]()
    serve(limiter, most, 1500, turned_away)
    assert limiter.traffic.good == 1500
    assert most // 2 <= limiter.traffic.limit <= most + 1
    # each cycle from half of `most` up to it lets 3/8 most² requests through and loses one
    assert len(turned_away) <= START + most + 1500 / (3 / 8 * most * most + 1) + 10


def test_until_the_first_overload_the_limit_doubles_with_each_round() -> None:
    async def ask(limiter: RateLimiter) -> None:
        ticket = limiter.arrive()
        await ticket.turn()
        await asyncio.sleep(1.0)
        ticket.leave(LoadSignal.GOOD)

    async def rounds() -> list[int]:
        limiter, limits = RateLimiter(), []
        asks = [asyncio.create_task(ask(limiter)) for _ in range(500)]
        await asyncio.sleep(0.5)
        for _ in range(4):
            limits.append(limiter.traffic.limit)
            await asyncio.sleep(1.0)
        await asyncio.gather(*asks)
        return limits

    assert at_once(rounds()) == [START, 2 * START, 4 * START, 8 * START]


def test_overloads_of_one_moment_halve_the_limit_once() -> None:
    async def overload() -> None:
        tickets = [limiter.arrive() for _ in range(16)]
        for ticket in tickets:
            await ticket.turn()
        for ticket in tickets:
            ticket.leave(LoadSignal.OVERLOADED)

    limiter = RateLimiter(Limits(concurrency=16))
    at_once(overload())
    assert (limiter.traffic.limit, limiter.traffic.cuts, limiter.traffic.overloaded) == (8, 1, 16)


def test_after_a_cut_one_is_added_per_window_up_to_what_was_allowed() -> None:
    limiter = RateLimiter(Limits(concurrency=4))

    async def ask(tickets: list[Any], verdict: LoadSignal) -> None:
        for ticket in tickets:
            await ticket.turn()
        for ticket in tickets:
            ticket.leave(verdict)

    async def rounds() -> list[int]:
        await ask([limiter.arrive()], LoadSignal.OVERLOADED)
        limits = [limiter.traffic.limit]
        for _ in range(30):
            workers = [asyncio.create_task(one()) for _ in range(limiter.traffic.limit)]
            await asyncio.gather(*workers)
            limits.append(limiter.traffic.limit)
        return limits

    async def one() -> None:
        ticket = limiter.arrive()
        await ticket.turn()
        await asyncio.sleep(0)
        ticket.leave(LoadSignal.GOOD)

    limits = at_once(rounds())
    assert limits[0] == 2 and limits[-1] == 4
    assert all(after - before in (0, 1) for before, after in itertools.pairwise(limits))


def test_an_idle_rate_limiter_learns_nothing() -> None:
    limiter = RateLimiter()

    async def one_by_one() -> None:
        for _ in range(100):
            ticket = limiter.arrive()
            await ticket.turn()
            ticket.leave(LoadSignal.GOOD)

    at_once(one_by_one())
    assert limiter.traffic.limit == START


def test_tokens_that_were_not_needed_are_given_back() -> None:
    async def ask() -> tuple[float, float]:
        limiter = RateLimiter(Limits(tpm=100))
        ticket = limiter.arrive(90)
        await ticket.turn()
        ticket.leave(LoadSignal.GOOD)
        ticket.account(prompt=10, sampled=5)
        second = limiter.arrive(80)
        await second.turn()
        then = now()
        third = limiter.arrive(80)
        await third.turn()
        return then, now()

    assert at_once(ask()) == (0.0, MINUTE)


def test_one_loop_after_the_other_may_use_a_rate_limiter_but_not_two_at_once() -> None:
    async def ask(limiter: RateLimiter) -> None:
        ticket = limiter.arrive()
        await ticket.turn()
        with pytest.raises(RuntimeError, match="two event loops"):
            await asyncio.to_thread(asyncio.run, limiter.arrive().turn())
        ticket.leave(LoadSignal.GOOD)

    limiter = RateLimiter(Limits(concurrency=1))
    for _ in range(2):
        asyncio.run(ask(limiter))
    assert limiter.traffic.good == 2


def test_one_rate_limiter_for_one_server_and_its_limits() -> None:
    first = shared_limiter("a", Limits(rpm=1))
    assert shared_limiter("a", Limits(rpm=1)) is first
    assert shared_limiter("a", Limits(rpm=2)) is not first
    assert shared_limiter("b", Limits(rpm=1)) is not first


# ── against a server ─────────────────────────────────────────────────────────


def prompt(seed: int) -> Prompt:
    return Prompt((user("?"),), None, Sampling(), seed)


async def converse(model: RemoteModel, session: int, turns: int) -> list[Generation]:
    return [await model.generate(prompt(1000 * session + turn)) for turn in range(turns)]


def expected(sessions: int, turns: int) -> list[list[str]]:
    return [[f"seed {1000 * s + turn}" for turn in range(turns)] for s in range(sessions)]


@pytest.mark.slow
def test_hundreds_of_sessions_settle_at_what_the_server_bears() -> None:
    async def run() -> tuple[Crowded, RemoteModel, list[list[str]]]:
        async with crowded(8, seconds=0.15) as server:
            model = RemoteModel("small", server.url, **HASTY)
            replies = await asyncio.gather(*(converse(model, s, 1) for s in range(200)))
            await model.close()
            return server, model, [[reply.text for reply in turns] for turns in replies]

    server, model, words = asyncio.run(run())
    traffic = model.traffic
    assert words == expected(200, 1)
    assert traffic.good == 200
    assert traffic.cuts >= 1 and 4 <= traffic.limit <= 9
    assert len(server.requests) == traffic.sent == 200 + len(server.refused)
    assert len(server.refused) <= 40
    assert (traffic.prompt_tokens, traffic.sampled_tokens) == (2000, 400)


def test_nothing_is_lost_when_the_server_errs_drops_and_hangs() -> None:
    rng = random.Random(3)
    moods: list[Mood] = rng.choices(["good", "error", "drop", "hang"], [90, 4, 4, 2], k=5000)

    async def run() -> tuple[Crowded, RemoteModel, list[list[str]]]:
        async with crowded(30, mood=moods.__getitem__) as server:
            model = RemoteModel("small", server.url, attempts=10, timeout=1.0)
            replies = await asyncio.gather(*(converse(model, s, 2) for s in range(150)))
            await model.close()
            return server, model, [[reply.text for reply in turns] for turns in replies]

    server, model, words = asyncio.run(run())
    assert words == expected(150, 2)
    assert model.traffic.under_way == 0
    assert len(server.requests) <= 3 * 300


@pytest.mark.slow
def test_a_pause_that_the_server_asks_for_holds_for_everyone() -> None:
    async def run() -> Crowded:
        async with crowded(4, retry_after="1", seconds=0.02) as server:
            model = RemoteModel("small", server.url, **HASTY)
            await asyncio.gather(*(converse(model, s, 1) for s in range(30)))
            await model.close()
            return server

    server = asyncio.run(run())
    # requests in flight when the pause began were sent before the server's response
    later = [time for time in server.times if time > server.refused[0] + 0.5]
    assert server.refused and min(later) - server.refused[0] >= 1.0


@pytest.mark.slow
def test_a_server_that_turns_everyone_away_is_asked_a_bounded_number_of_times() -> None:
    async def run() -> tuple[Crowded, list[Any]]:
        async with crowded(0) as server:
            model = RemoteModel("small", server.url, attempts=3, timeout=5.0)
            asks = (model.generate(prompt(seed)) for seed in range(100))
            ended = await asyncio.gather(*asks, return_exceptions=True)
            await model.close()
            return server, ended

    server, ended = asyncio.run(run())
    assert all(isinstance(error, InfrastructureFault) for error in ended)
    assert len(server.requests) == 300


def test_a_fixed_concurrency_is_never_exceeded() -> None:
    async def run() -> Crowded:
        async with crowded(100) as server:
            model = RemoteModel("small", server.url, limiter=RateLimiter(Limits(concurrency=3)))
            await asyncio.gather(*(converse(model, s, 1) for s in range(60)))
            await model.close()
            return server

    assert asyncio.run(run()).peak == 3


@pytest.mark.parametrize("mood", ["error", "hang", "rubbish"])
def test_what_went_wrong_frees_its_slot(mood: Mood) -> None:
    async def run() -> RemoteModel:
        async with crowded(100, mood=lambda number: mood) as server:
            model = RemoteModel(
                "small",
                server.url,
                attempts=1,
                timeout=0.2,
                limiter=RateLimiter(Limits(concurrency=2)),
            )
            asks = (model.generate(prompt(seed)) for seed in range(6))
            ended = await asyncio.gather(*asks, return_exceptions=True)
            assert all(isinstance(error, InfrastructureFault) for error in ended)
            await model.close()
            return model

    traffic = asyncio.run(run()).traffic
    assert (traffic.under_way, traffic.waiting, traffic.sent) == (0, 0, 6)
