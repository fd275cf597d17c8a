"""Facts about processes from the operating system."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from palaestra.rollout.deadline import Deadline
from palaestra.rollout.processes import family_bytes, is_ending, processor_seconds

HELD = 96 * 2**20  # bytes that two processes share
SHARING = f"import os, time; held = bytes(range(256)) * {HELD // 256}; os.fork(); time.sleep(60)"
BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
def test_a_process_starved_of_the_processor_does_not_wait() -> None:
    core = str(min(psutil.Process().cpu_affinity()))
    crowd = [subprocess.Popen([sys.executable, "-c", BUSY, core]) for _ in range(3)]
    try:
        time.sleep(0.5)
        first = [processor_seconds(one.pid) for one in crowd]
        started = time.monotonic()
        time.sleep(1.5)
        took = time.monotonic() - started
        busy = [processor_seconds(one.pid) - was for one, was in zip(crowd, first, strict=True)]
        computed = sum(psutil.Process(one.pid).cpu_times().user for one in crowd)
    finally:
        for one in crowd:
            one.kill()
            one.wait()
    assert computed < 2 * (took + 0.5)  # three of them on one processor
    assert all(seconds > 0.6 * took for seconds in busy)


def test_a_sleeping_process_waits() -> None:
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(1.0)
        before = processor_seconds(sleeping.pid)
        time.sleep(0.5)
        assert processor_seconds(sleeping.pid) - before < 0.25
    finally:
        sleeping.kill()
        sleeping.wait()


def test_an_ended_process_reports_zeros() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert processor_seconds(ended.pid) == 0.0


def test_a_killed_process_is_ending_before_and_after_its_parent_learns_of_it() -> None:
    sleeping = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.PIPE
    )
    assert not is_ending(sleeping.pid)
    sleeping.kill()
    assert sleeping.stdout is not None and sleeping.stdout.read() == b""  # the pipe has closed
    assert is_ending(sleeping.pid)
    sleeping.wait()
    sleeping.stdout.close()
    assert is_ending(sleeping.pid)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
def test_a_deadline_extends_only_for_a_process_starved_of_the_processor() -> None:
    core = str(min(psutil.Process().cpu_affinity()))
    crowd = [subprocess.Popen([sys.executable, "-c", BUSY, core]) for _ in range(4)]
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(1.0)
        deadlines = [Deadline(1.0, one.pid) for one in (*crowd, sleeping)]
        assert all(deadline.left() > 0 for deadline in deadlines)
        time.sleep(1.5)
        *starved, idle = [deadline.left() for deadline in deadlines]
    finally:
        for one in (*crowd, sleeping):
            one.kill()
            one.wait()
    assert min(starved) > 0 >= idle


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell")
def test_memory_that_a_family_shares_counts_once_if_it_matters() -> None:
    sharing = subprocess.Popen([sys.executable, "-c", SHARING])
    try:
        while not (children := psutil.Process(sharing.pid).children()):
            time.sleep(0.02)
        resident = family_bytes(sharing.pid, 2**40)
        assert resident > 2 * HELD
        assert HELD < family_bytes(sharing.pid, HELD) < 1.5 * HELD
    finally:
        for one in (*children, sharing):
            one.kill()
        sharing.wait()
