"""The heartbeat: time in which a process does not run is no time that it had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from palaestra.core.heartbeat import MOST, Heartbeat, ran

SAYING = """
import sys, time
from palaestra.core.heartbeat import ran

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
    said, _ = process.communicate("\n", timeout=60)
    counted, passed = map(float, said.split())
    assert passed >= 3.0
    assert passed - counted >= 3.0 - 2 * MOST
