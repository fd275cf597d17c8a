"""`palaestra view`: show runs, episodes and their figures as a local web page."""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from contextlib import nullcontext

from palaestra.cli.browser_window import desktop, opening
from palaestra.core.errors import InputError, MissingPackage

EXAMPLE = "palaestra view runs/default-20260101-120000"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders (all of ./runs)")
    parser.add_argument("--port", type=int, default=8417, help="0: any free one (default: 8417)")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(options: argparse.Namespace) -> int:
    try:
        import uvicorn

        from palaestra.viewer.access import LOOPBACK
        from palaestra.viewer.app import application
        from palaestra.viewer.site import Site
    except ImportError as error:
        raise MissingPackage(
            f"The viewer needs the Python package '{error.name}', which is not installed; "
            "install it with: pip install 'palaestra[viewer]'."
        ) from error
    from palaestra.store.run_folder import RunFolder, default_root, run_path

    paths = [run_path(name) for name in options.runs]
    for path in paths:
        RunFolder.read(path).close()
    token = secrets.token_urlsafe(24)
    bound = listening(options.host, options.port)
    name = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{name}:{bound.getsockname()[1]}/?token={token}"
    print(f"palaestra view: {address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    names = LOOPBACK if options.host in LOOPBACK else None
    site = application(Site(default_root(), paths), token, names)
    server = uvicorn.Server(uvicorn.Config(site, log_level="warning"))
    shown = nullcontext() if options.no_browser or not desktop() else opening(address)
    with shown:
        server.run(sockets=[bound])
    return 0


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise InputError if the address cannot be used."""
    if not 0 <= port <= 65535:  # the system would wrap it around
        raise InputError(f"There is no port {port}; give 0 (any free port) to 65535.")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(target)
        found.listen()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Nothing can listen at {host}:{port}: {error}. Choose another --host or --port."
        ) from None
    return found
