"""A supervised process's side: it greets, sends heartbeats, reads, and ends with its driver."""

from __future__ import annotations

import os
import pickle
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from palaestra.cluster.worker_messages import BEAT, SIZE, Call, Greeting, dump, greet, versions

GRACE = 2.0  # seconds that a process lives on without its driver
PIECE = 1 << 20  # bytes that are sent or written at once
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


class Driver:
    """The connection to the driver, for a process that waits for what it sends.

    Methods raise EOFError at the end of the driver, or of the run, which ends a `with` of it.
    """

    def __init__(self, call: Call) -> None:
        """Connect, and send heartbeats from now on; raises OSError if it cannot be reached."""
        send_beats(call)
        self._socket = socket.create_connection((call.host, call.port), CONNECTING)
        self._socket.settimeout(None)
        self._socket.sendall(greeting(call))
        self.own_host: str = self._socket.getsockname()[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> bool:
        return kind is EOFError

    def send(self, message: object) -> None:
        try:
            self._socket.sendall(dump(message))
        except OSError:
            raise EOFError from None

    def receive(self) -> Any:
        """Return its next message."""
        size = bytearray(SIZE)
        self.fill(memoryview(size))
        data = bytearray(int.from_bytes(size, "big"))
        self.fill(memoryview(data))
        return pickle.loads(data)

    def receive_file(self, path: Path, size: int) -> None:
        """Write the next bytes to a file."""
        piece = memoryview(bytearray(PIECE))
        with path.open("wb") as file:
            while size:
                part = piece[: min(size, PIECE)]
                self.fill(part)
                size -= file.write(part)

    def fill(self, data: memoryview) -> None:
        """Read as many of the next bytes as `data` has."""
        while data:
            try:
                count = self._socket.recv_into(data)
            except OSError:
                count = 0
            if not count:
                raise EOFError
            data = data[count:]
