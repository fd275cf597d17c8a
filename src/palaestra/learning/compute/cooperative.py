"""Cooperative scheduling: a generator that yields where it may pause, and returns its result.

The learner's work is such a generator, so that acting and learning can alternate on one device
within one thread: no locks, and the weights never move under a running batch. Where another
process acts, the learner runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run_to_end(work: Callable[P, Generator[None, None, T]]) -> Callable[P, T]:
    """Return a function that does the same work without pauses."""

    @functools.wraps(work)
    def at_once(*args: P.args, **kwargs: P.kwargs) -> T:
        chunks = work(*args, **kwargs)
        while True:
            try:
                next(chunks)
            except StopIteration as done:
                return done.value

    return at_once


async def interleave(work: Generator[None, None, T], busy: Callable[[], bool]) -> T:
    """Alternate between the learner's work and the sampler, giving both the same time.

    Both compute on the same device. While all of the sampler's sessions wait for their
    environments, the learner gets the whole time.

    Args:
        work: yields after each chunk of work.
        busy: whether the sampler has something to do.

    Returns:
        the result of the work.
    """
    while True:
        started = time.monotonic()
        try:
            next(work)
        except StopIteration as done:
            return done.value
        until = 2 * time.monotonic() - started
        await asyncio.sleep(0)
        while busy() and time.monotonic() < until:
            await asyncio.sleep(0)


async def run_in_thread(work: Generator[None, None, T]) -> T:
    """Run the learner's work in a thread, while sessions go on in another process."""

    def at_once() -> T:
        return run_to_end(lambda: work)()

    with ThreadPoolExecutor(1) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, at_once)
