"""Starts an OpenEnv app: a program of its own, for whatever Python has the app's packages.

    python openenv_server.py module:app        (in the folder of the app)

It needs uvicorn, which OpenEnv brings along, and nothing of palaestra. Its first line is the port
that it listens at, on the loopback interface; it ends with its input, so that no server outlives
who started it. What the app prints goes to stderr.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def main(target: str) -> None:
    """Serve the app until the input ends."""
    sys.path[0] = os.getcwd()  # the app's folder, not this file's
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    said = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(target, log_level="warning", access_log=False))
    server.config.load()  # imports the app: who is told the port may connect at once
    os.write(said, f"{listening.getsockname()[1]}\n".encode())
    os.close(said)
    asyncio.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    main(sys.argv[1])
