"""Work in pieces: a generator that yields where it may pause, and returns its result.

The learner works that way, so that acting and learning can take turns on one device within one
thread: no locks, and the weights never move under a running batch. Where another process acts,
the learner has a thread to itself.
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


def whole(work: Callable[P, Generator[None, None, T]]) -> Callable[P, T]:
    """The same work without pauses."""

    @functools.wraps(work)
    def at_once(*args: P.args, **kwargs: P.kwargs) -> T:
        pieces = work(*args, **kwargs)
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                return done.value

    return at_once


async def alternately(work: Generator[None, None, T], busy: Callable[[], bool]) -> T:
    """Do the learner's work piece by piece; after each piece the sampler has as much time.

    Both compute on the same device: they take turns instead of fighting for it. Time that the
    sampler does not use, since all its sessions wait for their worlds, is the learner's.

    Args:
        work: yields after each piece.
        busy: whether the sampler has something to do.

    Returns:
        what the work returns.
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


async def beside(work: Generator[None, None, T]) -> T:
    """Do the learner's work in a thread, while sessions that another process serves go on."""

    def at_once() -> T:
        return whole(lambda: work)()

    with ThreadPoolExecutor(1) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, at_once)
