"""Kills what takes part in runs on Ray at random moments, and compares each run with its twin.

python scripts/cluster_campaign.py [--runs 20] [--seed 1] [--steps 20] [--engines] [--asynchronous]

The cluster is three Ray nodes of this machine: a head, and two machines with room for one worker, a
learner rank, and a copy of the record. Each run is a command of its own with 1 to 4 kills: of a
worker, of a learner rank, of a copy, of a machine (its raylet and all that it started), of a raylet
alone, of the cluster's head, of the driver, which is then resumed, or of the driver with the run's
folder, which is then resumed from the copy. The recipe is tiny and deterministic, so a run in one
process, without Ray, tells the weights and the episodes of all others bit for bit. With --engines,
an engine on another machine acts instead of the learner, and is killed as well; the twin is then an
undisturbed run on Ray. With --asynchronous, episodes must be complete and each group learned once.
Exit code 1 if any run differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster

from palaestra.core.episode import Episode
from palaestra.store.process_roster import Roster
from palaestra.store.run_folder import RunFolder

KEYS = """deterministic=true concurrency=8 environment.id=babyai/GoToObjS4 environment.transfer=
environment.workers=0 model.tiny.layers=2 model.tiny.width=64 model.context=512
imitation.demonstrations=32 imitation.epochs=3 imitation.learning_rate=3e-3
rl.tasks=4 rl.group=4 evaluation.tasks=4""".split()
GROUPS, MEMBERS = 4, 4
ASYNCHRONOUS = ["deterministic=false", "rl.asynchronous=true", "rl.staleness=1"]
CLUSTER = ["cluster.learners=2", "cluster.learner_cpus=0.4", "cluster.copies=2"]
CLUSTER += ["cluster.workers=[1, 2]", "cluster.worker_cpus=0.3"]
ENGINES = ["cluster.engines=1", "cluster.engine_cpus=0.3"]
KINDS = ["worker", "learner", "copy", "machine", "raylet", "driver", "disk"] * 2 + ["head"]
PALAESTRA = [sys.executable, "-m", "palaestra", "train"]
WITHIN = 400.0  # seconds for a run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20, help="of RL in each run")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    keys, cluster = (
        [*KEYS, f"rl.steps={options.steps}"],
        [*CLUSTER, *(ENGINES if options.engines else [])],
    )
    kinds = [*KINDS, *(["engine"] * 4 if options.engines else [])]
    if options.asynchronous:
        keys += ASYNCHRONOUS
    rng, rows = random.Random(options.seed), []
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # with others, products are rounded otherwise
    with tempfile.TemporaryDirectory() as root:
        os.environ["PALAESTRA_COPIES"] = str(Path(root) / "copies")
        here, machines = Path(root) / "here", Machines()
        try:
            if not options.asynchronous:
                extra = [*cluster, f"--on=ray={machines.address}"] if options.engines else []
                _started(["quick", "--run", str(here), "--set", *keys, *extra]).wait(WITHIN)
            for number in range(options.runs):
                run = Disturbed(machines, Path(root) / f"run-{number}", [*keys, *cluster])
                row = run.to_the_end(rng, kinds)
                row["right"] = row["exit"] == 0 and (
                    _whole(run.folder, options.steps)
                    if options.asynchronous
                    else _hash(run.folder) == _hash(here)
                )
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
        finally:
            machines.cluster.shutdown()
    right = sum(row["right"] for row in rows)
    kills = Counter(kind for row in rows for kind in row["kills"])
    moved = sum(row["moved"] for row in rows)
    summary = {"runs": len(rows), "right": right, "kills": dict(kills), "moved": moved}
    print(json.dumps({**summary, "each": rows} if options.json else summary))
    return 0 if right == len(rows) else 1


class Machines:
    """The cluster."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            self.cluster.add_node(num_cpus=1)
        self.address: str = self.cluster.address

    def kill(self, node: Any, *, alone: bool) -> None:
        """Kill a machine, or its raylet alone, and put a new machine in its place."""
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in [*([] if alone else raylet.children(recursive=True)), raylet]:
            process.kill()
        self.cluster.remove_node(node, allow_graceful=False)
        self.cluster.add_node(num_cpus=1)

    def kill_head(self) -> None:
        head = self.cluster.head_node.all_processes
        psutil.Process(head["gcs_server"][0].process.pid).kill()

    def begin_again(self) -> None:
        self.cluster.shutdown()
        self.begin()


class Disturbed:
    """A run on the cluster that is disturbed."""

    def __init__(self, machines: Machines, folder: Path, keys: list[str]) -> None:
        self.machines, self.folder = machines, folder
        self._kills: list[str] = []
        self._moved = 0
        self._driver = self._start("quick", "--run", str(folder), "--set", *keys)

    def to_the_end(self, rng: random.Random, kinds: list[str]) -> dict[str, Any]:
        """Kill 1 to 4 times; return which kills fell within the run, and its exit."""
        began = time.monotonic()
        for _ in range(rng.randint(1, 4)):
            kind, pause = rng.choice(kinds), rng.uniform(0.0, 3.0)
            while self._driver.poll() is None and not self._present("worker"):
                time.sleep(0.05)
            time.sleep(pause)
            if self._driver.poll() is not None:
                break
            if self._kill(kind, rng):
                self._kills.append(kind)
        return {
            "kills": self._kills,
            "exit": self._end(),
            "moved": self._moved + self._moved_by_driver(),
            "seconds": round(time.monotonic() - began, 1),
        }

    def _kill(self, kind: str, rng: random.Random) -> bool:
        """Kill one of that kind; return False if there is none."""
        if kind in ("machine", "raylet"):
            node = rng.choice([*self.machines.cluster.worker_nodes])
            self.machines.kill(node, alone=kind == "raylet")
        elif kind in ("driver", "disk"):
            self._moved += self._moved_by_driver()
            self._driver.kill()
            self._driver.wait()
            if kind == "disk":
                copy = _copy_of(self.folder)
                shutil.rmtree(self.folder)
                self.folder = copy
            self._driver = self._start("--resume", str(self.folder))
        elif kind == "head":
            self.machines.kill_head()
            stopped = self._end() != 0
            self._moved += self._moved_by_driver()
            self.machines.begin_again()
            if stopped:
                self._driver = self._start("--resume", str(self.folder))
        else:
            found = self._present(kind)
            if not found:
                return False
            with suppress(psutil.NoSuchProcess):
                psutil.Process(rng.choice(found)).kill()
        return True

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return _started([*arguments, f"--on=ray={self.machines.address}"])

    def _end(self) -> int:
        try:
            return self._driver.wait(WITHIN)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            return self._driver.wait()

    def _present(self, kind: str) -> list[int]:
        """Return the processes of a kind that are at work for the present driver."""
        roster = _roster(self.folder)
        if roster is None or roster.driver != self._driver.pid:
            return []
        return [entry.pid for entry in roster.present if entry.kind == kind]

    def _moved_by_driver(self) -> int:
        """Return how many sessions and calls of the latest driver went on elsewhere."""
        roster = _roster(self.folder)
        if roster is None:
            return 0
        return sum(entry.moved for entry in roster.entries if entry.kind != "copy")


def _started(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*PALAESTRA, *arguments], stdout=subprocess.DEVNULL, stderr=None)


def _copy_of(folder: Path) -> Path:
    """Return the copy that has the most of a run; one that was left behind has less."""
    with RunFolder.read(folder) as run:
        created = run.database.about()["created"]
    found = []
    for copy in Path(os.environ["PALAESTRA_COPIES"]).iterdir():
        if copy != folder and (copy / "run.json").is_file():
            with RunFolder.read(copy) as run:
                about = run.database.about()
                if about["created"] == created:
                    found.append((int(about["epoch"]), len(run.database.recorded()), copy))
    return max(found)[2]


def _roster(folder: Path) -> Roster | None:
    if not (folder / "run.json").is_file():
        return None
    with RunFolder.read(folder) as run:
        return Roster.read(run.database)


def _whole(folder: Path, expected: int) -> bool:
    """Return whether each group was lived and learned once, and every episode is complete."""
    with RunFolder.read(folder) as run:
        steps = [values for _, values in run.database.metrics("rl")]
        phases = [name for name in run.database.phases() if name.startswith("rl/")]
        episodes = [e for name in phases for e in run.database.episodes(name)]
    return (
        len(steps) == expected
        and len(episodes) == len({e.key for e in episodes}) == expected * GROUPS * MEMBERS
        and all(e.outcome.scored for e in episodes)
        and all([c.index for c in e.calls] == list(range(len(e.calls))) for e in episodes)
        and all([s.index for s in e.steps] == list(range(len(e.steps))) for e in episodes)
    )


def _hash(folder: Path) -> str:
    """Return the hash of the final weights and of all episodes, without what clocks decide."""
    found = hashlib.sha256((folder / "final" / "model.safetensors").read_bytes())
    with RunFolder.read(folder) as run:
        for phase in sorted(run.database.phases()):
            for episode in run.database.episodes(phase):
                found.update(repr(_essence(episode)).encode())
    return found.hexdigest()


def _essence(episode: Episode) -> tuple[object, ...]:
    calls = [(c.parent, c.prompt, c.completion, c.logprobs, c.version) for c in episode.calls]
    steps = [(s.action, s.transition, s.before) for s in episode.steps]
    return episode.key, episode.task, episode.outcome, calls, steps


if __name__ == "__main__":
    sys.exit(main())
