"""Games and teams are killed at random moments, resumed, and end as if they never had been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from palaestra.store.damage import NAME
from palaestra.store.database import Database
from tests.training.runs import command, environment, in_this_process, recorded_episodes

GAME = ("--env", "pettingzoo/rps:self?messages=all", "--player", "player_0=direct@random",
        "--player", "player_1=direct@random", "-n", "60")  # fmt: skip
AGAINST = ("--env", "pettingzoo/rps:self", "--team", "player_0=majority",
           "--team", "player_1=review", "--model", "random", "-n", "60")  # fmt: skip
TEAM = ("--env", "questions/things-2", "--team", "review",
        "--model", "reader?right=0.6&recall=0.8&false=0.1", "-n", "300")  # fmt: skip
WORKERS = ("--workers", "1", "--concurrency", "8")
KILLS = 5
LOOK = 0.002  # seconds between looks at the record
WORKER = "palaestra.rollout.worker"


def steps(run: Path) -> int:
    """Return the number of recorded steps of a run; 0 before its record is there."""
    if not (run / NAME).exists():
        return 0
    with closing(Database.open(run / NAME, readonly=True)) as database:
        return database.steps()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("asked", [GAME, TEAM, AGAINST], ids=["game", "team", "teams"])
def test_whatever_is_killed_ends_as_if_it_had_not_been(
    tmp_path: Path, asked: tuple[str, ...], seed: int
) -> None:
    rng = random.Random(f"kills {seed}")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    in_this_process("eval", *asked, *WORKERS, "--run", whole)
    kills, places = 0, sorted(rng.sample(range(steps(whole) // 2), KILLS))
    for place in places:
        begun = ("--resume", killed) if (killed / "run.json").exists() else ("--run", killed)
        rest = ("--workers", "1") if begun[0] == "--resume" else (*asked, *WORKERS)
        process = subprocess.Popen(
            command("eval", *begun, *rest),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
        try:
            while process.poll() is None and steps(killed) <= place:
                time.sleep(LOOK)
            kills += process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert kills == KILLS
    in_this_process("eval", "--resume", killed, "--workers", "1")
    assert recorded_episodes(killed) == recorded_episodes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [GAME, TEAM, AGAINST], ids=["game", "team", "teams"])
def test_workers_that_are_killed_cost_no_episode(tmp_path: Path, asked: tuple[str, ...]) -> None:
    rng = random.Random(0)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    in_this_process("eval", *asked, "--workers", "2", "--concurrency", "8", "--run", whole)
    run = psutil.Popen(
        command("eval", *asked, "--workers", "2", "--concurrency", "8", "--run", killed),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    kills = 0
    try:
        while run.poll() is None:
            time.sleep(rng.uniform(0.1, 0.5))
            with suppress(psutil.Error):
                children = [one for one in run.children() if WORKER in one.cmdline()]
                if children:
                    rng.choice(children).kill()
                    kills += 1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert kills
    in_this_process("eval", "--resume", killed, "--workers", "2")
    assert recorded_episodes(killed) == recorded_episodes(whole)
