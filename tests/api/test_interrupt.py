"""Ctrl-C: finished episodes are kept, the resume command is printed, and nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import palaestra as pa

SCRIPT = """
import asyncio
import palaestra as pa

class Room(pa.Environment, free_text=True):
    instructions = "Wait."
    @classmethod
    def tasks(cls, environment): return pa.TaskSet(environment)
    def reset(self, task): return pa.Observation(task.id)
    def step(self, action):
        return pa.Transition(pa.Observation("Done."), 1.0, terminated=True, success=True)

class Waiting(pa.Agent):
    name = "waiting"
    async def run(self, session):
        if FIRST and session.observation.text == "test/3":
            await asyncio.sleep(3600)
        await session.act("wait")

def work():
    if FIRST:
        return pa.evaluate(Room, agent=Waiting, model="null", n=8, run=FOLDER, concurrency=1)
    return pa.Run(FOLDER).resume().results

async def cell():
    return work()
"""


def started(tmp_path: Path, call: str, first: bool) -> subprocess.Popen[str]:
    script = tmp_path / "slow.py"
    names = f"FIRST, FOLDER = {first}, {str(tmp_path / 'run')!r}\n"
    script.write_text(names + SCRIPT + f"print({call}.data['episodes'])\n")
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def ended(folder: Path) -> int:
    try:
        return len(pa.Run(folder).results.episodes)
    except pa.PalaestraError:  # it has not begun
        return 0


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("work()", id="script"),
        pytest.param("asyncio.run(cell())", id="notebook", marks=pytest.mark.slow),
    ],
)
def test_what_has_ended_is_kept_and_the_rest_is_run_later(call: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(tmp_path, call, first=True)
    while ended(folder) < 3:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert "pa.Run(" in errors and ".resume()" in errors

    kept = pa.Run(folder).results
    assert len(kept.episodes) == 3 and not kept.complete
    assert "interrupted" in str(kept.data["stopped"])
    out, errors = started(tmp_path, call, first=False).communicate(timeout=120)
    assert out.strip() == "8", errors
    whole = pa.Run(folder).results
    assert whole.complete
    assert [e.usage for e in whole.episodes[:3]] == [e.usage for e in kept.episodes]
