"""Sandboxes kept ready."""

from __future__ import annotations

import threading
import time

import pytest

from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.sandbox.base import Ended, Limits, Sandbox, Settings
from palaestra.sandbox.sandbox_pool import Pool
from palaestra.sandbox.unsafe import PlainSandbox

READY = ["python3", "-c", "print('ready', flush=True)\nwhile True: print(input(), flush=True)"]


def make() -> Sandbox:
    return PlainSandbox(Settings(Limits(seconds=0.5)))


def test_each_is_handed_out_once_and_its_time_counts_from_then() -> None:
    with Pool(make, 2, command=READY, ready="ready") as pool:
        first = pool.take()
        second = pool.take()
        assert first.sandbox is not second.sandbox
        third = pool.take()
        time.sleep(0.3)
        late = pool.take()
        time.sleep(0.3)  # longer than its time limit, which starts when it is taken
        later = pool.take()
        assert later.program is not None
        later.program.send("hello")
        assert later.program.receive(5.0) == "hello"
        time.sleep(0.6)
        assert later.program.close().ended is Ended.SECONDS
        for warm in (first, second, third, late, later):
            warm.close()


def test_one_that_is_ready_is_not_waited_for() -> None:
    made = threading.Semaphore(0)

    def slow() -> Sandbox:
        made.acquire()
        return make()

    with Pool(slow, 1) as pool:
        made.release()
        warm = pool.take()
        with pytest.raises(InfrastructureFault, match="none ready"):
            pool.take(0.05)
        made.release()
        warm.close()
        pool.take().close()
        made.release()


def test_what_keeps_one_from_being_made_is_reported_and_tried_again() -> None:
    tries = iter([OSError("no space"), None])

    def make_or_fail() -> Sandbox:
        fault = next(tries, None)
        if fault is not None:
            raise fault
        return make()

    with Pool(make_or_fail, 1) as pool:
        with pytest.raises(InfrastructureFault, match="no space"):
            pool.take()
        pool.take().close()


def test_a_pool_of_none_is_refused() -> None:
    with pytest.raises(InputError, match="size"):
        Pool(make, 0)
