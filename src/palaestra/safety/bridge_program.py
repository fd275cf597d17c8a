"""Run inside a sandbox without a network: a port of its own loopback that leads to the gateway.

Called with the Unix socket that leads out, the port, and the command, which it starts and whose
exit code it ends with. It imports nothing but the standard library. The other end of the socket is
`relay.py`'s.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading


def pour(source: socket.socket, sink: socket.socket) -> None:
    """Bytes from one end to the other, until either is gone."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes whoever reads from it, as closing does not


def join(inside: socket.socket, path: str) -> None:
    """One connection."""
    with inside, socket.socket(socket.AF_UNIX) as outside:
        try:
            outside.connect(path)
        except OSError:
            return
        back = threading.Thread(target=pour, args=(outside, inside), daemon=True)
        back.start()
        pour(inside, outside)
        back.join()


def accept(listening: socket.socket, path: str) -> None:
    """Every connection, each in a thread of its own."""
    while True:
        inside, _ = listening.accept()
        threading.Thread(target=join, args=(inside, path), daemon=True).start()


def main(path: str, port: str, *command: str) -> int:
    """Open the port, and run the command to its end."""
    listening = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    threading.Thread(target=accept, args=(listening, path), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = subprocess.call(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    except OSError as error:
        print(f"{command[0]} does not start in the sandbox: {error}", flush=True)
        return 127
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
