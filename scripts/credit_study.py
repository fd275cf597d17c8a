"""The learning studies of docs/results/credit.md: parts of algorithms side by side, many seeds.

    python scripts/credit_study.py run FOLDER STUDY [--seeds 5] [--worlds probe/sea-4 …]
    python scripts/credit_study.py keep FOLDER STUDY
    python scripts/credit_study.py table FOLDER STUDY
    python scripts/credit_study.py curves FOLDER STUDY PICTURE.png

STUDY is credit, staleness, entropy or smollm2. `run` makes one starting policy per environment and
seed, then one RL run per variant from it, all with the same token budget; finished runs are not
repeated. `keep` adds finished runs to docs/results/study_scores.csv, one line per run, so that a
study can continue on another machine: these runs are not repeated, and count in tables. `table`
prints interquartile means over all seeds and environments with stratified bootstrap intervals
(`pip install rliable`), and the mean of each environment; `curves` plots success in training
against tokens, the mean over seeds.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Keys = list[str]
KEPT = Path(__file__).resolve().parents[1] / "docs" / "results" / "study_scores.csv"
START = "start"  # the starting policy, listed as a variant


@dataclass(frozen=True)
class Study:
    """The variants of a study, their environments, starting policies and token budget."""

    recipe: str
    worlds: Mapping[str, tuple[Keys, Keys]]  # of the starting policy of each, and of its variants
    common: Keys  # of starts and variants
    rl: Keys  # of all variants
    variants: Mapping[str, Keys]
    start: str  # studies of equal name share their starting policies
    processes: int = 2  # with one thread each; 1 has all threads


# enough to notice the deciding word, too little to use it
EXPERT = ["imitation.demonstrations=72", "imitation.epochs=12", "imitation.learning_rate=3e-3"]
VIEW = [
    "imitation.demonstrations=96",
    "imitation.epochs=8",
    "imitation.batch=16",
    "imitation.learning_rate=3e-3",
]
CHANCE = [
    "imitation.demonstrator=random",
    "imitation.examples_options.least=0",
    "imitation.demonstrations=256",
    "imitation.epochs=6",
    "imitation.learning_rate=3e-3",
]
WORLDS = {
    # delayed credit; at the others' learning rate, every rule converges to one choice at once
    "probe/umbrella-8": (EXPERT, ["rl.learning_rate=5e-4"]),
    # partial information: only the cells ahead are visible
    "babyai/GoToObjS6": (VIEW, ["rl.learning_rate=1e-3"]),
    # exploration: every success is found by RL
    "probe/sea-4": (CHANCE, ["rl.learning_rate=1e-3"]),
}
TINY = [
    "model.precision=fp32",
    "model.context=512",
    "agent.max_tokens=4",
    "evaluation.tasks=256",
    "environment.transfer=",
    "environment.workers=0",
    "checkpoint_every=1000",
]
TINY_RL = [
    "rl.steps=1000",
    "rl.tokens=500000",
    "rl.tasks=16",
    "rl.group=8",
    "rl.reward_options.outcome.turn_cost=0",
    "rl.rewards.environment=0.5",
]
PPO = ["rl.loss=ppo", "rl.aggregation=rollout-token-mean"]  # one loss under all credit rules
CRITIC = ["rl.critic.shared=true"]
RULES: dict[str, Keys] = {
    "reinforce": ["rl.credit=reinforce", "rl.credit_options.baseline=batch"],
    "reinforce++": ["rl.credit=reinforce++"],
    "remax": ["rl.credit=remax"],
    "rloo": ["rl.credit=rloo"],
    "grpo": ["rl.credit=grpo"],
    "gigpo": ["rl.credit=gigpo"],
    "rloo + anchor": ["rl.credit=rloo + anchor"],
    "mt_grpo": ["rl.credit=mt_grpo"],
    "step_grpo": ["rl.credit=step_grpo"],
    "return_to_go": ["rl.credit=return_to_go"],
    "gae": ["rl.credit=gae", *CRITIC],
    "turn_gae": ["rl.credit=turn_gae", *CRITIC],
    "bilevel_gae": ["rl.credit=bilevel_gae", *CRITIC],
}
LOSSES: dict[str, Keys] = {
    "pg": ["rl.loss=pg"],
    "ppo": ["rl.loss=ppo"],
    "loop": ["rl.loss=loop"],
    "gspo": ["rl.loss=gspo"],
    "cispo": ["rl.loss=cispo"],
    "decoupled": ["rl.loss=decoupled"],
    "ppo + tis": ["rl.loss=ppo", "rl.correction=tis"],
}
ENTROPY: dict[str, Keys] = {
    "none": [],
    "bonus 0.003": ["rl.entropy.bonus=0.003"],
    "bonus 0.01": ["rl.entropy.bonus=0.01"],
    "EPO squared": ["rl.entropy.bonus=0.01", "rl.entropy.smoothing=1.0"],
    "EPO as released": [
        "rl.entropy.bonus=0.01",
        "rl.entropy.smoothing=1.0",
        "rl.entropy.form=indicator",
    ],
}
STALE = {
    f"{name}, {staleness}": [*keys, f"rl.staleness={staleness}"]
    for name, keys in LOSSES.items()
    for staleness in (0, 2, 8)
}
SMOLLM2: dict[str, Keys] = {
    "loop": ["rl.algorithm=loop"],
    "grpo": ["rl.algorithm=grpo"],
    "gigpo": ["rl.algorithm=gigpo"],
    "turn_gae": ["rl.algorithm=turn-ppo"],
}
STUDIES = {
    "credit": Study("quick", WORLDS, TINY, [*TINY_RL, *PPO], RULES, "tiny"),
    "staleness": Study("quick", WORLDS, TINY, TINY_RL, STALE, "tiny"),
    "entropy": Study("quick", WORLDS, TINY, TINY_RL, ENTROPY, "tiny"),
    "smollm2": Study(
        "default",
        {"babyai/GoToLocalS5N2": ([], [])},
        ["environment.transfer="],
        ["minutes=", "rl.steps=1000", "rl.tokens=300000"],
        SMOLLM2,
        "smollm2",
        processes=1,
    ),
}


def train(recipe: str, folder: Path, keys: Sequence[str], seed: int, threads: int | None) -> None:
    """Train one run through the command line, unless its report exists."""
    if (folder / "report.json").is_file():
        return
    command = [sys.executable, "-m", "palaestra", "train", recipe, "--seed", str(seed)]
    command += ["--run", str(folder), "--set", *keys]
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    print(
        folder, "failed: " + done.stderr.strip()[-300:] if done.returncode else "done", flush=True
    )


def home(root: Path, study: Study, world: str, seed: int) -> Path:
    return root / f"{study.start}-{world.partition('/')[2]}-{seed}"


def run(root: Path, name: str, seeds: int, worlds: Sequence[str]) -> None:
    """Run all environments, seeds and variants."""
    study = STUDIES[name]
    threads = 1 if study.processes > 1 else None
    cases = [(world, seed) for seed in range(1, seeds + 1) for world in worlds]
    done = kept(name)

    def start(case: tuple[str, int]) -> None:
        world, seed = case
        if all((world, seed, variant) in done for variant in study.variants):
            return
        tiny = ["model.tiny.layers=2", "model.tiny.width=64"] if study.start == "tiny" else []
        keys = [f"environment.id={world}", *study.common, *tiny, *study.worlds[world][0]]
        folder = home(root, study, world, seed) / "start"
        train(study.recipe, folder, [*keys, "rl.steps=0"], seed, threads)

    def vary(case: tuple[str, int, str]) -> None:
        world, seed, variant = case
        if case in done:
            return
        folder = home(root, study, world, seed)
        begin = [f"model.name={folder / 'start' / 'final'}", "imitation.demonstrations=0"]
        keys = [f"environment.id={world}", *begin, *study.common, *study.rl]
        keys += [*study.worlds[world][1], *study.variants[variant]]
        train(study.recipe, folder / name / variant.replace(" ", "_"), keys, seed, threads)

    with ThreadPoolExecutor(study.processes) as pool:
        list(pool.map(start, cases))
        list(pool.map(vary, [(*case, v) for case in cases for v in study.variants]))


def table(root: Path, name: str, worlds: Sequence[str]) -> None:
    """Print interquartile means over seeds and environments, and the mean of each environment."""
    from rliable import library, metrics

    study = STUDIES[name]
    every = {**kept(name), **measured(root, name)}
    found = {variant: by_seed(every, variant, worlds) for variant in (START, *study.variants)}
    found = {variant: numbers for variant, numbers in found.items() if numbers.size}
    points, intervals = library.get_interval_estimates(
        found, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=5000
    )
    print("| variant | seeds | success, IQM % [95 %] | " + " | ".join(worlds) + " |")
    print("| --- " * (3 + len(worlds)) + "|")
    for variant, numbers in sorted(found.items(), key=lambda item: -points[item[0]][0]):
        low, high = 100 * intervals[variant][:, 0]
        each = " | ".join(f"{100 * mean:.1f}" for mean in numbers.mean(axis=0))
        iqm = f"{100 * points[variant][0]:.1f} [{low:.1f}, {high:.1f}]"
        print(f"| {variant} | {len(numbers)} | {iqm} | {each} |")


def curves(root: Path, name: str, worlds: Sequence[str], picture: Path) -> None:
    """Plot success of training rollouts against tokens read and sampled, per environment."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    study = STUDIES[name]
    figure, axes = plt.subplots(
        1, len(worlds), figsize=(5 * len(worlds), 5), squeeze=False, layout="constrained"
    )
    colours = plt.get_cmap("tab20").colors
    for axis, world in zip(axes[0], worlds, strict=True):
        for number, variant in enumerate(study.variants):
            file = f"{name}/{variant.replace(' ', '_')}/report.json"
            paths = [home(root, study, world, seed) / file for seed in range(1, 100)]
            lines = [learning_curve(path) for path in paths if path.is_file()]
            if not lines:
                continue
            tokens = np.linspace(0, min(x[-1] for x, _ in lines), 60)
            mean = np.mean([np.interp(tokens, x, y) for x, y in lines], axis=0)
            style = ("-", "--", ":")[number // 7 % 3]
            axis.plot(tokens / 1000, 100 * mean, style, color=colours[number % 20], label=variant)
        axis.set(title=world, xlabel="thousand tokens", ylim=(0, 100))
    axes[0][0].set_ylabel("success of training rollouts, %")
    handles, labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, fontsize=8)
    figure.savefig(picture, dpi=110)


def learning_curve(report: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens so far and success at each step of a run, smoothed over five steps."""
    steps = json.loads(report.read_text())["curve"]
    tokens = np.cumsum([step["sampled_tokens"] + step["prompt_tokens"] for step in steps])
    success = np.array([step["success"] for step in steps])
    width = min(5, len(success))
    weights = np.convolve(np.ones(len(success)), np.ones(width), "same")
    return tokens, np.convolve(success, np.ones(width), "same") / weights


Scores = dict[tuple[str, int, str], float]  # of world, seed and variant: success


def measured(root: Path, name: str) -> Scores:
    """Return the success of the finished runs in a folder."""
    study, found = STUDIES[name], Scores()
    for world in study.worlds:
        for seed in range(1, 100):
            folder = home(root, study, world, seed)
            for variant in (START, *study.variants):
                inner = START if variant == START else f"{name}/{variant.replace(' ', '_')}"
                report = folder / inner / "report.json"
                if report.is_file():
                    stage = "imitation" if variant == START else "rl"
                    score = json.loads(report.read_text())["success"][stage]
                    found[world, seed, variant] = score["mean"]
    return found


def kept(name: str) -> Scores:
    """Return the scores of a study in the file of scores."""
    if not KEPT.is_file():
        return {}
    with KEPT.open() as file:
        rows = [row for row in csv.DictReader(file) if row["study"] == name]
    return {(row["world"], int(row["seed"]), row["variant"]): float(row["success"]) for row in rows}


def keep(root: Path, name: str) -> None:
    """Add a folder's scores to the file."""
    every = {study: kept(study) for study in STUDIES}
    every[name] = {**every[name], **measured(root, name)}
    with KEPT.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["study", "world", "seed", "variant", "success"])
        for study, scores in every.items():
            writer.writerows([study, *case, f"{score:.6f}"] for case, score in scores.items())


def by_seed(scores: Scores, variant: str, worlds: Sequence[str]) -> np.ndarray:
    """Return success as [seeds, environments], without seeds that miss an environment."""
    rows = [
        [scores[world, seed, variant] for world in worlds]
        for seed in range(1, 100)
        if all((world, seed, variant) in scores for world in worlds)
    ]
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "keep", "table", "curves"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("picture", type=Path, nargs="?", default=Path("curves.png"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--worlds", nargs="+")
    options = parser.parse_args()
    worlds = options.worlds or list(STUDIES[options.study].worlds)
    if options.what == "run":
        run(options.folder, options.study, options.seeds, worlds)
    elif options.what == "keep":
        keep(options.folder, options.study)
    elif options.what == "curves":
        curves(options.folder, options.study, worlds, options.picture)
    else:
        table(options.folder, options.study, worlds)


if __name__ == "__main__":
    main()
