"""Two thousand actors that write to each other, in groups, with two processes of environments.

An actor holds an opinion, a number. In each of five rounds all actors of a group act at the same
time: each reads its mail, takes the mean of all that it read and its own as its opinion (DeGroot
1974), and writes it to four neighbours. So each actor sends 20 messages. Each message is a step of
the record, committed to the run's database before its actor goes on; the run is an ordinary
evaluation, so `palaestra ctl RUN status` shows its progress meanwhile.

    python benchmarks/actors.py [--actors 2000] [--group 100] [--workers 2] [--rounds N] [--json]

A group is an episode; all groups run at once. A repetition must leave the same record.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import Result, run

import palaestra as pa
from palaestra.cli.ctl_command import status
from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Observation, Stakes
from palaestra.core.episode import Episode
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.environments.simultaneous import Round, Simultaneous
from palaestra.store.run_folder import RunFolder, default_root

ROUNDS, NEIGHBOURS = 5, (1, 2, -1, -2)  # of each actor, by their distance on a ring
GOAL = 60.0  # seconds
GROUPS = (20, 50, 100, 200, 500, 1000)  # sizes


class Town(Simultaneous, stakes=Stakes("common", idle="wait")):
    """Actors that see only their own first opinion, and all move at the same time."""

    instructions = "Write to your neighbours, then say: wait."

    def begin(self, task: Task) -> None:
        rng = random.Random(task.seed)
        self.opinions = {player: rng.randrange(1000) for player in self.spec.players}
        self.round = 0

    def movers(self) -> Sequence[str]:
        return self.spec.players if self.round < ROUNDS else ()

    def refusal(self, player: str, action: Action) -> str | None:
        return None if action.text == "wait" else "Say: wait."

    def play(self, moves: Mapping[str, Action]) -> Round:
        self.round += 1
        over = self.round == ROUNDS
        return Round(dict.fromkeys(self.spec.players, 1.0 if over else 0.0), success=over)

    def observe(self, player: str) -> Observation:
        return Observation(f"Opinion: {self.opinions[player]}" if self.round == 0 else "Go on.")


def _town(size: int) -> type[Town]:
    """Return a town of that many actors."""
    players = tuple(f"a{number}" for number in range(size))

    class Sized(Town, players=players):
        """A town of this size."""

    Sized.__name__ = Sized.__qualname__ = f"Town{size}"
    return Sized


for _size in GROUPS:
    globals()[f"Town{_size}"] = _town(_size)


class Actor(Agent):
    """Writes the mean of all that it read to its neighbours."""

    name = "actor"

    def __init__(self, neighbours: Sequence[str]) -> None:
        self.neighbours = neighbours

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen, own = session.observation.text, list[float]()
        while not session.over:
            read = [float(found) for found in re.findall(r": ([\d.]+)$", seen, re.MULTILINE)]
            own = [round(statistics.fmean([*own, *read]), 3)]
            for neighbour in self.neighbours:
                await session.act(f"send_message(to='{neighbour}', text='{own[0]}')")
            seen = (await session.act("wait")).observation.text


class Actors(Agent):
    """An actor for each player."""

    name, several = "actors", True

    async def run(self, session: Session) -> None:
        players = session.players
        await session.play(
            {
                player: Actor([players[(at + far) % len(players)] for far in NEIGHBOURS])
                for at, player in enumerate(players)
            }
        )


def digest(episodes: Sequence[Episode]) -> str:
    """Return a digest of all that the record holds, times excepted."""
    found = hashlib.sha256()
    for episode in episodes:
        for step in episode.steps:
            found.update(repr((step.index, step.before.turn, step.action)).encode())
            found.update(repr((step.transition, episode.outcome)).encode())
    return found.hexdigest()


def once(actors: int, group: int, workers: int) -> dict[str, Any]:
    """Run all actors; return seconds, messages, a digest of the record, and how often it grew."""
    default_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="actors-", dir=default_root()) as name:
        folder, seen = Path(name) / "run", set[int]()
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.5):
                if (folder / "run.json").is_file():
                    seen.add(status(folder)["steps"])

        watching = threading.Thread(target=watch, daemon=True)
        started = time.monotonic()
        watching.start()
        pa.evaluate(
            f"actors:Town{group}?messages=all",
            agent=f"actors:{Actors.__name__}",
            model="null",
            n=actors // group,
            concurrency=actors // group,
            workers=workers,
            turns=2 * group * ROUNDS * (len(NEIGHBOURS) + 1),
            run=folder,
            progress=False,
        )
        seconds = time.monotonic() - started
        ended.set()
        watching.join()
        with RunFolder.read(folder) as opened:
            episodes = opened.database.episodes("eval/test")
    sent = sum("message" in s.transition.info for episode in episodes for s in episode.steps)
    assert sent == actors * ROUNDS * len(NEIGHBOURS), sent
    assert all(episode.outcome.solved for episode in episodes)
    return {"seconds": seconds, "messages": sent, "digest": digest(episodes), "seen": len(seen)}


def measure(options: argparse.Namespace) -> list[Result]:
    """Return the time of all messages against the goal; raises if two records differ."""
    found = [once(options.actors, options.group, options.workers) for _ in range(options.rounds)]
    assert len({one["digest"] for one in found}) == 1, "two runs left different records"
    assert all(one["seen"] > 1 for one in found), "the status showed no progress"
    seconds = [one["seconds"] for one in found]
    median = statistics.median(seconds)
    return [
        Result(
            f"{options.actors:,} actors, {found[0]['messages']:,} messages, in groups of "
            f"{options.group}, {options.workers} processes of environments, against {GOAL:g} s",
            ratio=GOAL / median,
            goal=1.0,
            low=GOAL / max(seconds),
            high=GOAL / min(seconds),
            figures={"seconds": median, "messages_per_second": found[0]["messages"] / median},
        )
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--actors", type=int, default=2000)
    parser.add_argument("--group", type=int, choices=GROUPS, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--rounds", type=int, default=2, help="repetitions, whose records are equal"
    )


if __name__ == "__main__":
    run(__doc__, measure, add_options)
