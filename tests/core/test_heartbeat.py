"""The heartbeat: time in which a process does not run is no time that it had."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palaestra.core.budget import MOST, Heartbeat, ran, timeout

SAYING = """
import sys, time
from palaestra.core.budget import ran

begun, wall = ran(), time.monotonic()
print("begun", flush=True)
sys.stdin.readline()
print(ran() - begun, time.monotonic() - wall)
"""


def test_time_that_passes_between_beats_counts_up_to_a_limit() -> None:
    now = 100.0
    heart = Heartbeat(lambda: now)
    now += 0.5 * MOST
    assert heart.beat() == pytest.approx(0.5 * MOST)
    now += 3600.0
    assert heart.beat() == pytest.approx(1.5 * MOST)


def test_a_process_that_waits_is_one_that_runs() -> None:
    begun, wall = ran(), time.monotonic()
    time.sleep(3 * MOST)
    # on a busy machine not all of it, but more than without a beat
    assert MOST < ran() - begun <= time.monotonic() - wall + MOST


def test_the_time_in_which_a_process_was_stopped_does_not_count() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SAYING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(process.pid, signal.SIGCONT)
    output, _ = process.communicate("\n", timeout=60)
    counted, passed = map(float, output.split())
    assert passed >= 3.0
    assert passed - counted >= 3.0 - 2 * MOST


def test_a_timeout_of_its_own_time_ends_what_takes_too_long() -> None:
    async def wait() -> bool:
        try:
            async with timeout(0.2) as clock:
                await asyncio.sleep(3600)
        except TimeoutError:
            return clock.expired()
        return False

    assert asyncio.run(wait())


def test_a_timeout_of_its_own_time_lets_go_what_ends_before() -> None:
    async def wait() -> None:
        for seconds in (None, 0.05):
            async with timeout(seconds):
                pass
        await asyncio.sleep(0.2)  # nothing comes afterwards

    asyncio.run(wait())


LIVING = """
import asyncio
from palaestra.core.budget import Budget
from palaestra.core.session import Session
from tests.core.small import KEY, TASK, Acting, Stairs

class Slow(Stairs):
    async def step(self, action):
        if self.place == 0:
            print("living", flush=True)
        for _ in range(10):
            await asyncio.sleep(0.02)
        return await super().step(action)

agent = Acting("up", "up", "up")
episode = asyncio.run(Session(KEY, TASK, Slow(), agent, {}, budget=Budget(seconds=3.0)).run())
print(episode.outcome, flush=True)
"""


@pytest.mark.slow
def test_an_episode_in_a_process_that_was_stopped_keeps_its_time() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LIVING],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "living\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(3.5)
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "success\n"
