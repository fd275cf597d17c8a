"""Abandoned programs end, whichever thread collects them."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from palaestra.sandbox.base import Sandbox
from palaestra.sandbox.unsafe import PlainSandbox

PATIENCE = 10.0


class Owner:
    """An owner of a sandbox that only the garbage collector can free: it refers to itself."""

    def __init__(self, sandbox: Sandbox, closed_by: list[threading.Thread]) -> None:
        self.sandbox, self.closed_by, self.itself = sandbox, closed_by, self

    def __del__(self) -> None:
        self.closed_by.append(threading.current_thread())
        self.sandbox.close()


@pytest.fixture
def forgotten() -> Iterator[threading.Event]:
    """Let only a thread started after this collect garbage, once the event is set."""
    event = threading.Event()

    def collect(*seen: object) -> None:
        if event.is_set():
            event.clear()
            gc.collect()

    gc.disable()
    threading.setprofile(collect)
    yield event
    threading.setprofile(None)
    gc.enable()


def test_a_program_whose_own_thread_finds_it_forgotten_ends(
    forgotten: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda seen: complaints.append(seen.exc_value))
    monkeypatch.setattr(threading, "excepthook", lambda seen: complaints.append(seen.exc_value))
    sandbox = PlainSandbox()
    folder, closed_by = sandbox.folder.path, []
    before = set(threading.enumerate())
    program = sandbox.start(["sleep", "60"])
    new = set(threading.enumerate()) - before
    (attending,) = (thread for thread in new if thread.name == "sandbox-program")
    Owner(sandbox, closed_by)
    del sandbox

    forgotten.set()
    attending.join(PATIENCE)

    assert closed_by == [attending] and complaints == []
    assert not attending.is_alive() and not folder.exists()
    ran = program.close()
    assert ran.code is None and ran.seconds < PATIENCE
