"""Runs the recipes of published pipelines with several seeds, and writes which claims hold.

    python scripts/stages_study.py run FOLDER [--seeds 1-5] [--jobs 2] [--only NAME …]
    python scripts/stages_study.py table FOLDER

`run` trains every recipe of recipes/stages (or those named) with every seed into FOLDER/NAME-SEED,
and goes on where it stopped. Where a recipe's head names a base, its model is the last version of
that recipe's run with the same seed, which is trained before. `table` adds the results of FOLDER to
docs/results/stages_scores.csv, and writes docs/results/stages.md between its markers from all of
that: the success of the last version on held-out tasks, and for each claim in a recipe's head the
difference from what it is against, paired by seed, with Student's 95 % interval over seeds. A
claim "against NAME on transfer" compares the success in the environment that the recipes test
besides the one they train in.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from results_page import write_table

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "recipes" / "stages"
SCORES = ROOT / "docs" / "results" / "stages_scores.csv"
COLUMNS = ("base", "last", "sampled", "trained", "seconds")
TRANSFER = "transfer"  # a column that is empty for recipes without such a test
STUDENT = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
}
"""The 97.5 % quantile of Student's distribution, by degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper finds, as a comparison of two recipes."""

    recipe: str
    text: str
    source: str
    against: str  # another recipe, or base: the policy before training
    on: str = "last"  # the success that is compared: last, or transfer


def claims() -> list[Claim]:
    """Return the claims in the heads of all recipes."""
    found = []
    for file in sorted(RECIPES.glob("*.toml")):
        head = re.findall(r"^# (claim|source|against): (.*)$", file.read_text(), re.MULTILINE)
        for at in range(0, len(head), 3):
            texts = dict(head[at : at + 3])
            against, _, on = texts["against"].partition(" on ")
            claim = Claim(file.stem, texts["claim"], texts["source"], against, on or "last")
            found.append(claim)
    return found


def base_of(name: str) -> str | None:
    """Return the recipe whose last version a recipe begins with; None: with its own model."""
    head = re.search(r"^# base: (.*)$", (RECIPES / f"{name}.toml").read_text(), re.MULTILINE)
    return None if head is None else head[1]


def train(name: str, seed: int, folder: Path) -> str:
    """Train one recipe with one seed, unless that is done; return what to say."""
    run = folder / f"{name}-{seed}"
    if (run / "report.json").is_file() and (run / "final").is_dir():
        return f"{run.name}: done before"
    words = ["train", str(RECIPES / f"{name}.toml"), "--run", str(run), "--set", f"seed={seed}"]
    if (base := base_of(name)) is not None:
        words.append(f"model.name={(folder / f'{base}-{seed}' / 'final').resolve()}")
    if run.exists():
        words = ["train", "--resume", str(run)]
    done = subprocess.run(
        [sys.executable, "-m", "palaestra", *words, "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return f"{run.name}: exit {done.returncode}, {last.strip()}"


Scores = dict[tuple[str, int], dict[str, float]]
"""By recipe and seed: success of the base and of the last version, tokens, and seconds."""


def results(folder: Path) -> Scores:
    """Return the results of the finished runs in a folder."""
    found: Scores = {}
    for file in folder.glob("*/report.json"):
        if not (file.parent / "final").is_dir():
            continue
        name, _, seed = file.parent.name.rpartition("-")
        report = json.loads(file.read_text())
        success = [v["mean"] for v in report["success"].values() if v is not None]
        stages = [s for s in report["stages"] if not s["name"].startswith("test/")]
        found[name, int(seed)] = {
            "base": success[0],
            "last": success[-1],
            "sampled": sum(s["sampled_tokens"] for s in stages),
            "trained": sum(s["trained_tokens"] for s in stages),
            "seconds": round(report["seconds"], 1),
        }
        if report["transfer"] is not None:
            *_, last = report["transfer"]["scores"].values()
            found[name, int(seed)][TRANSFER] = last["success"]["mean"]
    return found


def kept() -> Scores:
    """Return the results in docs."""
    if not SCORES.is_file():
        return {}
    with SCORES.open(newline="") as file:
        return {
            (row["recipe"], int(row["seed"])): {
                name: float(row[name]) for name in (*COLUMNS, TRANSFER) if row.get(name)
            }
            for row in csv.DictReader(file)
        }


def keep(scores: Scores) -> None:
    """Write the results into docs."""
    with SCORES.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["recipe", "seed", *COLUMNS, TRANSFER])
        for (recipe, seed), row in sorted(scores.items()):
            numbers = (f"{row[name]:g}" if name in row else "" for name in (*COLUMNS, TRANSFER))
            writer.writerow([recipe, seed, *numbers])


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and Student's 95 % interval."""
    mean = fmean(values)
    half = STUDENT[len(values) - 1] * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def verdict(low: float, high: float) -> str:
    """Return what an interval of a difference says of a claim that it is positive."""
    if low > 0:
        return "holds"
    return "reversed" if high < 0 else "not separated here"


def table(scores: Scores) -> str:
    """Return the tables in Markdown."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for (name, seed), row in scores.items():
        found.setdefault(name, {})[seed] = row
    head = ["| claim | recipe against | points, 95 % over seeds | seeds | verdict |"]
    lines = [*head, "| --- | --- | --- | --- | --- |"]
    for one in claims():
        ours, theirs = found.get(one.recipe, {}), found.get(one.against, {})
        if one.against == "base":
            pairs = [row["last"] - row["base"] for row in ours.values()]
        else:
            both = sorted(ours.keys() & theirs.keys())
            pairs = [ours[seed][one.on] - theirs[seed][one.on] for seed in both]
        if len(pairs) < 2:
            continue
        mean, low, high = (100 * x for x in interval(pairs))
        lines.append(
            f"| {one.text} ({one.source}) | `{one.recipe}` against `{one.against}`"
            f"{' on transfer' if one.on == TRANSFER else ''} | "
            f"{mean:+.1f} ({low:+.1f} to {high:+.1f}) | {len(pairs)} | {verdict(low, high)} |"
        )
    lines += ["", "| recipe | success, 95 % over seeds | seeds | sampled | trained | seconds |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    by_success = sorted(found, key=lambda name: -fmean(r["last"] for r in found[name].values()))
    for name in by_success:
        rows = list(found[name].values())
        success = f"{100 * fmean(row['last'] for row in rows):.1f} %"
        if len(rows) > 1:
            _, low, high = (100 * x for x in interval([row["last"] for row in rows]))
            success += f" ({max(0.0, low):.1f} to {min(100.0, high):.1f})"
        rest = [f"{fmean(row[key] for row in rows):,.0f}" for key in COLUMNS[2:]]
        lines.append(f"| `{name}` | {success} | {len(rows)} | {' | '.join(rest)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("run", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these recipes")
    parser.add_argument("--seeds", default="1-5", metavar="FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.do == "table":
        keep(scores := kept() | results(options.folder))
        write_table("stages.md", "table", [table(scores)])
        return 0
    first, _, last = options.seeds.partition("-")
    names = options.only or sorted(file.stem for file in RECIPES.glob("*.toml"))
    options.folder.mkdir(parents=True, exist_ok=True)
    seeds = range(int(first), int(last or first) + 1)
    bases = sorted({base for name in names if (base := base_of(name)) is not None})
    with ThreadPoolExecutor(options.jobs) as pool:
        for stage in (bases, [name for name in names if name not in bases]):
            work = [(name, seed) for seed in seeds for name in stage]
            for line in pool.map(lambda one: train(*one, options.folder), work):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
