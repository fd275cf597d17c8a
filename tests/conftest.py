"""Settings that must be made before any test imports torch.

OpenMP threads that spin while they wait slow down every other process of the
machine, the environment workers among them; passive ones sleep.

A shell starts a command with `&` deaf to Ctrl-C, and all its children inherit that: tests that
interrupt a child would wait for ever.
"""

import gc
import os
import signal
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("KMP_BLOCKTIME", "0")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import settings

FEW = 15  # examples of a law in the fast suite; `make test-laws` takes many

settings.register_profile("palaestra", deadline=None, max_examples=FEW)
settings.register_profile("laws", deadline=None, max_examples=500)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, max_examples=FEW)
settings.load_profile("ci" if os.environ.get("CI") else "palaestra")


def pytest_collection() -> None:
    """Collect without the garbage collector, which would walk a growing heap again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the modules and the tests, which stay anyway, out of what is walked from now on."""
    gc.collect()
    gc.freeze()
    gc.enable()
