"""The learning study of docs/results/credit.md: parts of algorithms on small worlds, many seeds.

    python scripts/credit_study.py run FOLDER [--only credit|staleness|entropy] [--seeds 5]
    python scripts/credit_study.py table FOLDER

`run` makes one imitated policy per world and seed, then one RL run per variant from it, two
processes at a time with one thread each; what is done already is not done again. `table` prints
interquartile means with stratified bootstrap intervals (rliable) over all finished runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

WORLDS = {  # what each isolates
    "probe/umbrella-8": "delayed credit",
    "probe/memory-8": "partial information",
    "probe/sea-5": "exploration",
}
CRITIC = ["rl.critic.kind=head", "rl.critic.shared=true"]
CREDIT: dict[str, list[str]] = {
    "reinforce": ["rl.credit=reinforce"],
    "reinforce++": ["rl.credit=reinforce++"],
    "remax": ["rl.credit=remax"],
    "rloo": ["rl.credit=rloo"],
    "grpo": ["rl.credit=grpo"],
    "drgrpo": ["rl.credit=drgrpo"],
    "gigpo": ["rl.credit=gigpo"],
    "rloo + anchor": ["rl.credit=rloo + anchor"],
    "mt_grpo": ["rl.credit=mt_grpo"],
    "step_grpo": ["rl.credit=step_grpo"],
    "gae": ["rl.credit=gae", *CRITIC],
    "turn_gae": ["rl.credit=turn_gae", *CRITIC],
    "bilevel_gae": ["rl.credit=bilevel_gae", *CRITIC],
}
LOSSES: dict[str, list[str]] = {
    "pg": ["rl.loss=pg"],
    "ppo": ["rl.loss=ppo"],
    "loop": ["rl.loss=loop"],
    "gspo": ["rl.loss=gspo"],
    "cispo": ["rl.loss=cispo"],
    "decoupled": ["rl.loss=decoupled"],
    "ppo + tis": ["rl.loss=ppo", "rl.correction=tis"],
}
ENTROPY: dict[str, list[str]] = {
    "none": [],
    "bonus 0.003": ["rl.entropy.bonus=0.003"],
    "bonus 0.01": ["rl.entropy.bonus=0.01"],
    "EPO, squared": ["rl.entropy.bonus=0.01", "rl.entropy.smoothing=1.0"],
    "EPO, as released": [
        "rl.entropy.bonus=0.01",
        "rl.entropy.smoothing=1.0",
        "rl.entropy.form=indicator",
    ],
}
COMMON = [
    "model.precision=fp32",
    "model.context=512",
    "agent.max_tokens=4",
    "evaluation.tasks=256",
    "environment.transfer=",
    "environment.workers=0",
    "concurrency=64",
]
# the start: a policy that says allowed words at random, so that every success is found by RL
IMITATION = [
    "model.tiny.layers=2",
    "model.tiny.width=64",
    "imitation.speaker=random",
    "imitation.examples_options.least=0",
    "imitation.demonstrations=64",
    "imitation.epochs=4",
    "rl.steps=0",
]
RL = [
    "imitation.demonstrations=0",
    "rl.steps=400",
    "rl.tokens=250000",
    "rl.tasks=8",
    "rl.group=8",
    "rl.turn_cost=0",
    "rl.world_reward=0.5",
    "rl.learning_rate=5e-4",
    "checkpoint_every=1000",
]


def variants(only: str | None) -> Iterator[tuple[str, list[str]]]:
    """Names (study/variant) and what they set beyond the common recipe."""
    if only in (None, "credit"):
        for name, keys in CREDIT.items():
            loss = ["rl.algorithm=loop", "rl.loss=ppo", "rl.aggregation=rollout-token-mean"]
            yield f"credit/{name}", [*loss, *keys]
    if only in (None, "staleness"):
        for name, keys in LOSSES.items():
            for staleness in (0, 2, 8):
                yield f"staleness {staleness}/{name}", [*keys, f"rl.staleness={staleness}"]
    if only in (None, "entropy"):
        for name, keys in ENTROPY.items():
            yield f"entropy/{name}", keys


def train(folder: Path, keys: list[str], seed: int) -> None:
    """One run through the command line; nothing where its report is there already."""
    if (folder / "report.json").is_file():
        return
    command = [sys.executable, "-m", "palaestra.cli.main", "train", "quick", "--seed", str(seed)]
    command += ["--run", str(folder), "--set", *COMMON, *keys]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    print(
        folder, "failed: " + done.stderr.strip()[-300:] if done.returncode else "done", flush=True
    )


def run(root: Path, only: str | None, seeds: int) -> None:
    """All worlds, seeds and variants, two at a time."""
    cases = [(world, seed) for seed in range(1, seeds + 1) for world in WORLDS]

    def base(case: tuple[str, int]) -> None:
        world, seed = case
        keys = [f"environment.id={world}", *IMITATION]
        train(root / f"{world.partition('/')[2]}-{seed}" / "imitation", keys, seed)

    def one(case: tuple[str, int, str, list[str]]) -> None:
        world, seed, name, keys = case
        home = root / f"{world.partition('/')[2]}-{seed}"
        start = [f"environment.id={world}", f"model.name={home / 'imitation' / 'final'}"]
        train(home / name.replace("/", "-").replace(" ", "_"), [*start, *RL, *keys], seed)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(base, cases))
        list(pool.map(one, [(*case, *variant) for case in cases for variant in variants(only)]))


def table(root: Path) -> None:
    """Interquartile means over seeds and worlds, and the mean of each world."""
    from rliable import library, metrics

    print("| study | variant | IQM of success, % [95 % interval] | " + " | ".join(WORLDS) + " |")
    print("| --- " * (3 + len(WORLDS)) + "|")
    studies: dict[str, dict[str, np.ndarray]] = {}
    for name, _ in [("imitation alone/", []), *variants(None)]:
        study, _, variant = name.partition("/")
        file = name.replace("/", "-").replace(" ", "_") if variant else "imitation"
        stage = "base" if variant else "imitation"
        found = scores(root, file, "rl" if variant else stage)
        if found.size:
            studies.setdefault(study, {})[variant or "-"] = found
    for study, by_variant in studies.items():
        points, intervals = library.get_interval_estimates(
            by_variant, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=5000
        )
        for variant, found in by_variant.items():
            low, high = 100 * intervals[variant][:, 0]
            worlds = " | ".join(f"{100 * mean:.1f}" for mean in found.mean(axis=0))
            cell = f"{100 * points[variant][0]:.1f} [{low:.1f}, {high:.1f}]"
            print(f"| {study} | {variant} | {cell} | {worlds} |")


def scores(root: Path, file: str, stage: str) -> np.ndarray:
    """Success of the finished runs, [seeds, worlds]; seeds that miss a world are left out."""
    rows = []
    for seed in range(1, 100):
        row = []
        for world in WORLDS:
            path = root / f"{world.partition('/')[2]}-{seed}" / file / "report.json"
            if path.is_file():
                row.append(json.loads(path.read_text())["success"][stage]["mean"])
        if len(row) == len(WORLDS):
            rows.append(row)
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("credit", "staleness", "entropy"))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "run":
        run(options.folder, options.only, options.seeds)
    else:
        table(options.folder)


if __name__ == "__main__":
    main()
