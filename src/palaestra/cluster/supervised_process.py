"""A supervised process's side: it greets, sends heartbeats, and ends with its driver."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import suppress

from palaestra.cluster.worker_messages import BEAT, Call, Greeting, greet, versions

GRACE = 2.0  # seconds that a process lives on without its driver
CONNECTING = 20.0  # seconds until a connection to the driver has failed


def greeting(call: Call, *, beats: bool = False) -> bytes:
    """Return the first bytes of a connection to the driver."""
    node = socket.gethostname()
    return greet(call.secret, Greeting(call.birth, node, os.getpid(), versions(), beats))


def send_beats(call: Call) -> None:
    """Send heartbeats from now on; end this process with the driver, whatever it is computing.

    Raises:
        OSError: the driver cannot be reached.
    """
    beats = socket.create_connection((call.host, call.port), CONNECTING)
    beats.sendall(greeting(call, beats=True))
    threading.Thread(target=_beat, args=(beats,), daemon=True).start()


def _beat(connection: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection.sendall(b".")
            if select.select([connection], [], [], BEAT)[0]:
                break  # it never writes: this is its end
    time.sleep(GRACE)
    os._exit(0)
