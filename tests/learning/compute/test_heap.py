"""What was freed is used again, without its pages going to the system and back."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, threading
import torch
from palaestra.learning.compute.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():  # as a pass does: many blocks at once, 300 MB in all
    return [torch.ones(size << 18) for size in range(1, 25)]

def again():
    rounds = []
    for _ in range(6):
        before = faults()
        work()
        rounds.append(faults() - before)
    print(*rounds)

if "keep" in sys.argv:
    keep_freed_memory()
again()
thread = threading.Thread(target=again)
thread.start()
thread.join()
"""
PAGES = 300 << 8

linux = pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")


def faults(*arguments, **environment):
    """Of doing the same six times, in the main thread and then in another one."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **environment},
        check=True,
    )
    return [[int(word) for word in line.split()] for line in ran.stdout.splitlines()]


@pytest.mark.slow
@linux
def test_freed_memory_is_used_again_without_page_errors():
    assert faults()[0][1] > PAGES // 2  # otherwise there is nothing to keep
    for rounds in faults("keep"):  # a fragmented heap may grow in a round or two
        assert min(rounds[1:]) < PAGES // 10


@pytest.mark.slow
@linux
def test_a_user_who_tunes_the_heap_is_left_alone():
    assert faults("keep", MALLOC_PERTURB_="1")[0][1] > PAGES // 2
