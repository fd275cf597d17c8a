"""Kills what takes part in runs on Ray at random moments, and compares each run with its twin.

python scripts/cluster_campaign.py --runs 20 [--seed 1] [--asynchronous] [--json]

The cluster is three Ray nodes of this machine: a head, and two machines with room for one worker
each. Each run is a command of its own with 1 to 4 kills: of a worker, of a machine (its raylet and
all that it started), of a raylet alone, or of the driver, which is then resumed. The recipe is tiny
and deterministic, so a run in one process, without Ray, tells the weights and the episodes of all
others bit for bit. With --asynchronous, episodes must be complete and each group learned once.
Exit code 1 if any run differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
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
from palaestra.store.run_folder import RunFolder
from palaestra.store.worker_roster import Roster

KEYS = """deterministic=true concurrency=8 environment.id=babyai/GoToObjS4 environment.transfer=
environment.workers=0 model.tiny.layers=2 model.tiny.width=64 model.context=512
imitation.demonstrations=32 imitation.epochs=3 imitation.learning_rate=3e-3
rl.steps=40 rl.tasks=4 rl.group=4 evaluation.tasks=4""".split()
ASYNCHRONOUS = ["deterministic=false", "rl.asynchronous=true", "rl.staleness=1"]
STEPS, GROUPS, MEMBERS = 40, 4, 4
KINDS = ("worker", "machine", "raylet", "driver")
PALAESTRA = [sys.executable, "-m", "palaestra", "train"]
WITHIN = 300.0  # seconds for a run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    keys = [*KEYS, *(ASYNCHRONOUS if options.asynchronous else [])]
    rng, rows = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as root:
        here = Path(root) / "here"
        if not options.asynchronous:
            _started(["quick", "--set", *keys, "--run", str(here)]).wait(WITHIN)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        try:
            for number in range(options.runs):
                folder = Path(root) / str(number)
                row = disturbed(cluster, folder, keys, rng)
                ended = row["exit"] == 0
                row["right"] = ended and (
                    _whole(folder) if options.asynchronous else _hash(folder) == _hash(here)
                )
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
        finally:
            cluster.shutdown()
    right = sum(row["right"] for row in rows)
    kills = Counter(kind for row in rows for kind in row["kills"])
    moved = sum(row["sessions_moved"] for row in rows)
    summary = {"runs": len(rows), "right": right, "kills": dict(kills), "sessions_moved": moved}
    print(json.dumps({**summary, "each": rows} if options.json else summary))
    return 0 if right == len(rows) else 1


def disturbed(cluster: Any, folder: Path, keys: list[str], rng: random.Random) -> dict[str, Any]:
    """Run once on the cluster with 1 to 4 kills; return which fell within the run, and its exit."""
    on, began, kills, moved = f"--on=ray={cluster.address}", time.monotonic(), [], 0
    driver = _started(["quick", "--set", *keys, "--run", str(folder), on])
    for _ in range(rng.randint(1, 4)):
        kind, pause = rng.choice(KINDS), rng.uniform(0.0, 2.0)
        while driver.poll() is None and not _workers(folder, driver.pid):
            time.sleep(0.05)
        time.sleep(pause)
        known = _workers(folder, driver.pid)
        if driver.poll() is not None:
            break
        if kind == "worker" and known:
            with suppress(psutil.NoSuchProcess):
                psutil.Process(rng.choice(known)).kill()
        elif kind in ("machine", "raylet"):
            _kill_machine(cluster, rng.choice([*cluster.worker_nodes]), alone=kind == "raylet")
        elif kind == "driver":
            driver.kill()
            driver.wait()
            moved += _moved(folder)
            driver = _started(["--resume", str(folder), on])
        else:
            continue
        kills.append(kind)
    try:
        status = driver.wait(WITHIN)
    except subprocess.TimeoutExpired:
        driver.kill()
        status = driver.wait()
    return {
        "kills": kills,
        "sessions_moved": moved + _moved(folder),
        "exit": status,
        "seconds": round(time.monotonic() - began, 1),
    }


def _started(arguments: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*PALAESTRA, *arguments], stdout=subprocess.DEVNULL, stderr=None)


def _workers(folder: Path, driver: int) -> list[int]:
    """Return the processes of the workers that are at work for this driver."""
    roster = _roster(folder)
    if roster is None or roster.driver != driver:
        return []
    return [entry.pid for entry in roster.present]


def _moved(folder: Path) -> int:
    """Return how many sessions of the latest driver went on elsewhere."""
    roster = _roster(folder)
    return 0 if roster is None else sum(entry.moved for entry in roster.entries)


def _roster(folder: Path) -> Roster | None:
    if not (folder / "run.json").is_file():
        return None
    with RunFolder.read(folder) as run:
        return Roster.read(run.database)


def _kill_machine(cluster: Any, node: Any, *, alone: bool) -> None:
    """Kill a machine, or its raylet alone, and put a new machine in its place."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [*([] if alone else raylet.children(recursive=True)), raylet]:
        process.kill()
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(num_cpus=1)


def _whole(folder: Path) -> bool:
    """Return whether each group was lived and learned once, and every episode is complete."""
    with RunFolder.read(folder) as run:
        steps = [values for _, values in run.database.metrics("rl")]
        phases = [name for name in run.database.phases() if name.startswith("rl/")]
        episodes = [e for name in phases for e in run.database.episodes(name)]
    return (
        len(steps) == STEPS
        and len(episodes) == len({e.key for e in episodes}) == STEPS * GROUPS * MEMBERS
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
