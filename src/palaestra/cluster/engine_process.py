"""An engine: a process that serves a copy of the policy over HTTP, with weights from its driver.

It has the files of a checkpoint from the driver once, and then each version of the weights as one
stretch of bytes. It confirms a version only when every reply is sampled with it.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cluster.supervised_process import Driver
from palaestra.cluster.worker_messages import Call

if TYPE_CHECKING:
    from palaestra.models.local.server import Server
    from palaestra.models.local.weight_stream import Layout


@dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint, from which an engine makes its network; the bytes of its files follow."""

    files: tuple[tuple[str, int], ...]  # names and sizes
    options: Mapping[str, Any]  # of `models.local.server.load_policy`
    threads: int
    one_by_one: bool  # see `Server`


@dataclass(frozen=True, slots=True)
class Load:
    """Weights; their bytes follow, as `weight_stream` lays them out."""

    version: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Serves:
    """An engine acts with these weights."""

    version: int
    url: str


def serve(call: Call) -> None:
    """Serve policies until the driver ends the connection, or ends itself.

    Raises:
        OSError: the driver cannot be reached.
        InputError: the policy cannot run here.
    """
    with Driver(call) as driver:
        _serve(driver, call.secret.hex())


def _serve(driver: Driver, key: str) -> None:
    origin = driver.receive()
    server = _build(driver, origin, key)
    loop, url = _listen(server, driver.own_host)

    from palaestra.models.local.weight_stream import WeightBuffer

    buffer = WeightBuffer()
    while True:
        load = driver.receive()
        driver.fill(buffer.memory(load.layout))
        replaced = server.replace(buffer.tensors(load.layout), load.version)
        asyncio.run_coroutine_threadsafe(replaced, loop).result()
        driver.send(Serves(load.version, url))


def _build(driver: Driver, origin: Origin, key: str) -> Server:
    """Return the server of a checkpoint whose files the driver sends."""
    from palaestra.models.local.server import Server, load_policy, prepare_torch

    prepare_torch(origin.threads, deterministic=origin.one_by_one)
    with tempfile.TemporaryDirectory(prefix="palaestra-") as name:
        for file, size in origin.files:
            path = Path(name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            driver.receive_file(path, size)
        model = load_policy(Path(name), **origin.options)
    return Server(model, key, one_by_one=origin.one_by_one)


def _listen(server: Server, host: str) -> tuple[asyncio.AbstractEventLoop, str]:
    """Serve in a thread, at a port that the system chooses; return its event loop and the URL."""
    import uvicorn

    loop, listener = asyncio.new_event_loop(), socket.create_server((host, 0))
    listening = uvicorn.Server(
        uvicorn.Config(server.app, log_level="warning", access_log=False, lifespan="off")
    )
    work = listening.serve(sockets=[listener])
    threading.Thread(target=loop.run_until_complete, args=(work,), daemon=True).start()
    return loop, f"http://{host}:{listener.getsockname()[1]}"
