"""Sandboxed programs leave no zombies, even if this is process 1 of a container."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from palaestra.sandbox.factory import open_sandbox
from tests.sandbox.kinds import parameters, skip_unless_here

PROGRAM = """
import os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.base import Ended, Limits

kind, runs = sys.argv[1], int(sys.argv[2])
asked = [subprocess.Popen(["sh", "-c", "exit 7"], start_new_session=new) for new in (False, True)]
daemon = ["sh", "-c", "(setsid sh -c 'true & exec sleep 60' >&- 2>&- &) ; true"]
short = ["sh", "-c", "(sleep 0.01 &) ; (true &) ; exit 3"]
sandbox = open_sandbox(kind)

def live(number):
    assert sandbox.run(short).code == 3
    if number < 100 and number % 8 == 0:
        assert sandbox.run(daemon).code == 0
        over = sandbox.run(["sleep", "60"], limits=Limits(seconds=0.1))
        assert over.ended is Ended.SECONDS
        program = sandbox.start(["cat"])
        program.send("hello")
        assert program.receive(60) == "hello"
        program.close()

with ThreadPoolExecutor(4) as threads:
    list(threads.map(live, range(runs)))
sandbox.close()
zombies = []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
    except OSError:
        continue
    if fields[0] == "Z" and fields[1] == str(os.getpid()):
        zombies.append(int(name))
mine = {process.pid for process in asked}
assert mine <= set(zombies), "a child of somebody else was reaped"
assert [process.wait() for process in asked] == [7, 7]
assert not set(zombies) - mine, f"{len(set(zombies) - mine)} zombies after {runs} runs"
"""
ADOPTS = "import ctypes; ctypes.CDLL(None).prctl(36, 1)\n"  # as process 1 always does


@pytest.fixture(params=parameters(["bubblewrap", "gvisor", "unsafe"]))
def kind(request: pytest.FixtureRequest) -> str:
    skip_unless_here(request.param)
    if sys.platform != "linux":
        pytest.skip("only Linux hands orphans on")
    return str(request.param)


def runs_on(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_runs_leave_no_zombies_and_other_children_keep_their_exit_status(kind: str) -> None:
    runs_on(sys.executable, "-c", ADOPTS + PROGRAM, kind, "24")


def test_the_first_process_of_a_container_is_left_with_no_zombies(kind: str) -> None:
    container = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets us make no namespace of processes")
    runs_on(*container, sys.executable, "-c", PROGRAM, kind, "9")


def test_orphans_are_asked_for_no_longer_than_programs_run(kind: str) -> None:
    def asked() -> int:
        answer = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0)
        return answer.value

    before = asked()
    sandbox = open_sandbox(kind)
    program = sandbox.start(["cat"])
    assert asked() == 1
    program.close()
    assert asked() == before
    sandbox.close()


@pytest.mark.slow
def test_ten_thousand_runs_leave_no_zombies(kind: str) -> None:
    runs_on(sys.executable, "-c", ADOPTS + PROGRAM, kind, "10000")
