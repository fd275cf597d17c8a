"""The relay: single hosts for programs without a network, each a Unix socket to one address.

A program connects to the socket and uses the host's own protocol. `PALAESTRA_HOSTS` lists the
sockets as `name:port=path`, separated by spaces; no other address is reachable.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from palaestra.core.errors import InputError
from palaestra.sandbox.bridge_program import pour

INSIDE = "/run/hosts"
VARIABLE = "PALAESTRA_HOSTS"
CONNECTIONS = 64  # at once, to all hosts of a sandbox
PATIENCE = 10.0  # seconds for a host to answer
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


class Relay:
    """The sockets of one sandbox, in a folder of this machine."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._listening: list[socket.socket] = []
        for host in hosts:
            address(host)  # check all before opening any
        for host in hosts:
            listening = socket.socket(socket.AF_UNIX)
            path = folder / host
            listening.bind(str(path))
            path.chmod(0o666)
            listening.listen(8)
            self._listening.append(listening)
            arguments = (listening, address(host))
            threading.Thread(
                target=self._accept, args=arguments, name="sandbox-relay", daemon=True
            ).start()

    def close(self) -> None:
        """Accept no more connections; open ones end with their programs."""
        for listening in self._listening:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _accept(self, listening: socket.socket, target: tuple[str, int]) -> None:
        while True:
            try:
                inside, _ = listening.accept()
            except OSError:
                return
            if not self._free.acquire(blocking=False):
                inside.close()
                continue
            arguments = (inside, target)
            threading.Thread(
                target=self._join, args=arguments, name="sandbox-relay", daemon=True
            ).start()

    def _join(self, inside: socket.socket, target: tuple[str, int]) -> None:
        try:
            with inside, socket.create_connection(target, PATIENCE) as outside:
                outside.settimeout(None)
                back = threading.Thread(target=pour, args=(outside, inside), daemon=True)
                back.start()
                pour(inside, outside)
                back.join()
        except OSError:
            return  # the program sees a connection that ends
        finally:
            self._free.release()


def address(host: str) -> tuple[str, int]:
    """Return a granted host's name and port.

    Raises:
        InputError: it is not "name:port".
    """
    found = _ADDRESS.fullmatch(host)
    if found is None or not 0 < int(found[2]) < 65536:
        raise InputError(
            f"The host '{host}' cannot be granted, because it is not a name and port; write it "
            "like 'example.org:443'."
        )
    return found[1].strip("[]"), int(found[2])


def variable(hosts: Sequence[str]) -> str:
    """Return the value of `PALAESTRA_HOSTS` inside."""
    return " ".join(f"{host}={INSIDE}/{host}" for host in hosts)
