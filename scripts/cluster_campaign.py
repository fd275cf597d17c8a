"""Kills workers of runs on Ray at random moments, and compares each run with an undisturbed one.

python scripts/cluster_campaign.py --runs 20 [--seed 1] [--json]

The recipe is tiny and deterministic, so the undisturbed run, without Ray, tells the weights and the
episodes of all others bit for bit. Each run has 1 to 4 kills. Exit code 1 if any run differs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import psutil
import ray
from rich.console import Console

from palaestra.cluster.driver import Workers, worker_kind
from palaestra.cluster.ray_launcher import RayLauncher
from palaestra.core.episode import Episode
from palaestra.rollout.runner import Elsewhere
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import Recipe, load
from palaestra.training.run import execute

KEYS = """deterministic=true concurrency=8 environment.id=babyai/GoToObjS4 environment.transfer=
environment.workers=0 model.tiny.layers=2 model.tiny.width=64 model.context=512
imitation.demonstrations=32 imitation.epochs=3 imitation.learning_rate=3e-3
rl.steps=3 rl.tasks=4 rl.group=4 evaluation.tasks=4""".split()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    recipe, rng = load("quick", KEYS), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as root:
        expected = asyncio.run(undisturbed(recipe, Path(root) / "here"))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="palaestra")
        rows = []
        for number in range(options.runs):
            folder, kills = Path(root) / str(number), rng.randint(1, 4)
            started = time.monotonic()
            found, killed, moved = asyncio.run(disturbed(recipe, folder, kills, rng))
            rows.append(
                {
                    "kills": killed,
                    "sessions_moved": moved,
                    "equal": found == expected,
                    "seconds": round(time.monotonic() - started, 1),
                }
            )
            print(json.dumps(rows[-1]), file=sys.stderr)
        ray.shutdown()
    equal = sum(bool(row["equal"]) for row in rows)
    kills = sum(int(row["kills"]) for row in rows)
    moved = sum(int(row["sessions_moved"]) for row in rows)
    summary = {"runs": len(rows), "equal": equal, "kills": kills, "sessions_moved": moved}
    if options.json:
        print(json.dumps({**summary, "each": rows}))
    else:
        print(f"{equal} of {len(rows)} runs equal; {kills} kills moved {moved} sessions")
    return 0 if equal == len(rows) else 1


async def undisturbed(recipe: Recipe, folder: Path) -> str:
    """Return the hash of a run in this process."""
    await _train(recipe, folder, None)
    return _hash(folder)


async def disturbed(
    recipe: Recipe, folder: Path, kills: int, rng: random.Random
) -> tuple[str, int, int]:
    """Return the hash of a run on Ray, how many workers were killed, and the sessions they had."""
    killed = moved = 0

    async def kill(workers: Workers) -> None:
        nonlocal killed, moved
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0.0, 1.5))
            while not workers.connected:
                await asyncio.sleep(0.01)
            birth = rng.choice(sorted(workers.connected))
            moved += workers.leases.load(birth)
            killed += 1
            psutil.Process(workers.connected[birth].greeting.pid).kill()

    kind = worker_kind(2, 2)
    launcher = RayLauncher(None, [kind])
    async with Workers(launcher, lambda line: None, kind, processes=0) as workers:
        killing = asyncio.create_task(kill(workers))
        await _train(recipe, folder, workers.session)
        killing.cancel()
    return _hash(folder), killed, moved


async def _train(recipe: Recipe, folder: Path, elsewhere: Elsewhere | None) -> None:
    with RunFolder.create(folder, recipe.model_dump(mode="json")) as run:
        reporter = Reporter(Console(file=io.StringIO()))
        await execute(recipe, run, reporter, elsewhere=elsewhere)


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
