"""A peer answers from its own process, which rests between questions and ends with its context."""

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from measuring import Peer, PeerUnavailable

SCRIPT = """
import os, subprocess, sys
count = 0
print("words that are no answer")

def answer(request):
    global count
    count += 1
    print("more of them", flush=True)
    os.system("echo from a child")
    if "raise" in request:
        raise ValueError(request["raise"])
    if "exit" in request:
        print("the last words", file=sys.stderr, flush=True)
        os._exit(3)
    if "child" in request:
        return {"child": subprocess.Popen(["sleep", "600"]).pid}
    threads = os.environ["OMP_NUM_THREADS"]
    return {"count": count, "pid": os.getpid(), "threads": threads, "path": sys.path, **request}
"""

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def peer(folder: Path, script: str = SCRIPT) -> Peer:
    """A peer in this very environment, so that nothing is installed."""
    (folder / "script.py").write_text(script)
    made = Peer("test", [f"pytest=={version('pytest')}"], str(folder / "script.py"))
    made.python = Path(sys.executable)
    return made


def state(pid: int) -> str:
    """One letter of the kernel's; "" once the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[0]


def becomes(pid: int, *letters: str) -> bool:
    until = time.monotonic() + 20
    while state(pid) not in letters and time.monotonic() < until:
        time.sleep(0.01)
    return state(pid) in letters


def test_a_worker_keeps_its_state_and_what_it_prints_is_no_answer(tmp_path):
    with peer(tmp_path) as worker:
        first, second = worker.ask({"a": [1, 2]}), worker.ask({"a": None})
    assert (first["count"], first["a"]) == (1, [1, 2])
    assert (second["count"], second["a"]) == (2, None)
    assert first["pid"] == second["pid"] != os.getpid()
    assert int(first["threads"]) >= 1
    assert str(tmp_path) not in first["path"], "a script named after its peer would be imported"


@linux
def test_a_worker_is_stopped_while_no_one_asks_and_ends_with_its_context(tmp_path):
    with peer(tmp_path) as worker:
        pid = worker.ask({})["pid"]
        child = worker.ask({"child": True})["child"]
        assert becomes(pid, "T") and becomes(child, "T")
        assert worker.ask({})["pid"] == pid
    assert becomes(pid, "", "Z") and becomes(child, "", "Z")


def test_what_goes_wrong_in_a_worker_is_reported_in_one_sentence(tmp_path):
    with peer(tmp_path) as worker:
        with pytest.raises(PeerUnavailable, match="'test' failed: ValueError: not this"):
            worker.ask({"raise": "not this"})
        assert worker.ask({})["count"] == 2, "the worker goes on"
        with pytest.raises(PeerUnavailable, match="ended with code 3: the last words"):
            worker.ask({"exit": True})


def test_a_script_that_cannot_be_imported_is_reported_too(tmp_path):
    with (
        peer(tmp_path, "import there_is_no_such_module") as worker,
        pytest.raises(PeerUnavailable, match="ModuleNotFoundError"),
    ):
        worker.ask({})


def test_a_peer_that_cannot_be_installed_is_reported_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    worker = peer(tmp_path)
    worker.requirements = ("there-is-no-such-package==1.0",)
    with pytest.raises(PeerUnavailable, match=r"'test' could not be installed: .*no-such-package"):
        worker.install()


def test_requirements_are_pinned():
    with pytest.raises(ValueError, match="pin these requirements"):
        Peer("test", ["torch>=2"], "script.py")
