"""A standalone program that serves an OpenEnv app, for any Python that has the app's packages.

    python server.py module:app        (in the folder of the app)

It needs uvicorn, a dependency of OpenEnv, and nothing of palaestra. Its first line of output is the
port that it listens on, on the loopback interface. It exits when its input closes, so no server
outlives its parent. The app's output goes to stderr.
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
    output = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, daemon=True).start()
    server = uvicorn.Server(uvicorn.Config(target, log_level="warning", access_log=False))
    server.config.load()  # import the app first: the parent may connect once it has the port
    os.write(output, f"{listening.getsockname()[1]}\n".encode())
    os.close(output)
    asyncio.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    main(sys.argv[1])
