"""A bridge inside a sandbox without a network: forwards a loopback port to the gateway.

Its arguments are the Unix socket that leads out, the port, and the command. It starts the command
and exits with the command's exit code. It imports only the standard library. The other end of the
socket belongs to `relay.py`.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading


def pour(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes from one end to the other, until either closes."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes its readers, unlike closing


def join(inside: socket.socket, path: str) -> None:
    """Forward one connection."""
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
    """Forward every connection, each in its own thread."""
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
