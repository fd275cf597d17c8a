"""Workers as plain processes of this machine, for what needs no Ray; and runs to compare."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys

from palaestra.cluster.worker_messages import Call

SERVE = "import pickle, sys; from palaestra.cluster.session_worker import serve; "
SERVE += "serve(pickle.loads(bytes.fromhex(sys.stdin.readline())))"


class Processes:
    """A launcher of worker processes on this machine."""

    host = "127.0.0.1"

    def __init__(self, room: int = 2, program: str = SERVE) -> None:
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.started = 0
        self._room, self._program = room, program

    def room(self) -> int:
        return self._room

    async def start(self, call: Call) -> str:
        process = subprocess.Popen(
            [sys.executable, "-c", self._program], stdin=subprocess.PIPE, stderr=subprocess.PIPE
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

    def kill(self, birth: int) -> None:
        if birth in self.running:
            self.running.pop(birth).kill()

    def lack(self, least: int) -> str:
        return f"room for {self._room} of {least}"

    def close(self) -> None:
        for birth in list(self.running):
            self.kill(birth)
