"""Supervised processes as plain processes of this machine, for what needs no Ray."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import time

from palaestra.cluster.placement import Kind
from palaestra.cluster.worker_messages import Call
from palaestra.core.environment import Action, Transition
from tests.training.mortal import Around

SERVE = "import pickle, sys; from importlib import import_module; "
SERVE += "import_module(sys.argv[1]).serve(pickle.loads(bytes.fromhex(sys.stdin.readline())))"


class Processes:
    """A launcher of processes of one kind on this machine."""

    host = "127.0.0.1"

    def __init__(self, room: int = 2, program: str = SERVE) -> None:
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.started = 0
        self.dismissed: set[int] = set()
        self._room, self._program = room, program

    def room(self, kind: Kind) -> int:
        return self._room

    def leaving(self, kind: Kind) -> set[int]:
        return self.dismissed

    async def start(self, kind: Kind, call: Call) -> str:
        process = subprocess.Popen(
            [sys.executable, "-c", self._program, kind.module],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started += 1
        self.running[call.birth] = process
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(pickle.dumps(call).hex().encode() + b"\n")
        process.stdin.close()
        words = await asyncio.to_thread(process.stderr.read)
        status = await asyncio.to_thread(process.wait)
        process.stderr.close()
        return f"status {status} {words.decode()[-300:]}".strip()

    def kill(self, kind: Kind, birth: int) -> None:
        if birth in self.running:
            self.running.pop(birth).kill()

    def lack(self, kind: Kind) -> str:
        return f"room for {self._room} of {kind.least}"

    def close(self, kind: Kind) -> None:
        for birth in list(self.running):
            self.kill(kind, birth)


class Thawing(Processes):
    """A launcher that does not kill the first process: it was frozen, and will thaw."""

    def kill(self, kind: Kind, birth: int) -> None:
        if birth != 1:
            super().kill(kind, birth)


class Logged(Around):
    """An environment that takes a while and notes each of its steps in the file $STEPS."""

    def step(self, action: Action) -> Transition:
        with open(os.environ["STEPS"], "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.01)
        return super().step(action)
