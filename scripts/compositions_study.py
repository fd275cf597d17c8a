"""Compositions of web pages against their parts, for policies that saw the parts alone; a table.

    python scripts/compositions_study.py FOLDER MODEL … [--of A+B …] [--knobs "observation=text"]

After Furuta et al. 2023 (CompWoB). Task i of a composition holds task i of each of its pages. So,
task by task: `parts` is the mean success on its pages alone; `all parts`, whether each of them was
solved alone; `composed`, the whole; `reverse`, the whole told from its end. The gap is `composed`
less `all parts`, the effect of the order `reverse` less `composed`: paired over tasks, at 95 %.
FOLDER holds one run for each model, which is resumed if it is there already.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

import palaestra as pa
from palaestra.core.episode import Episode
from palaestra.evaluation.statistics.intervals import Interval, paired_difference

COMPOSITIONS = (
    "focus-text-2+enter-text",
    "login-user+click-dialog-2",
    "click-tab+click-dialog-2",
    "click-button+enter-text",
    "click-link+focus-text-2",
    "click-widget+enter-password",
)
HEAD = "| policy | tasks | parts | all parts | composed | gap | reverse | order |"


def names(compositions: list[str]) -> list[str]:
    """Return the environments: each composition, told in reverse, and its pages, each once."""
    wholes = [f"miniwob/{name}{end}" for name in compositions for end in ("", ":reverse")]
    return [*wholes, *sorted({f"miniwob/{page}" for c in compositions for page in c.split("+")})]


def episodes(model: str, options: argparse.Namespace) -> list[Episode]:
    """Return the episodes of a model; run those that are not in its folder."""
    folder = options.folder / model.strip("/.").replace("/", "-")
    if folder.exists():
        results = pa.Run(folder).resume(progress=False).results
    else:
        asked = [f"{name}?{options.knobs}" if options.knobs else name for name in names(options.of)]
        results = pa.evaluate(
            asked, model=model, n=options.tasks, max_tokens=24, run=folder, progress=False
        )
    return list(results.episodes)


def percent(interval: Interval) -> str:
    """Return a difference in points with its interval."""
    low, mean, high = (100 * x for x in (interval.low, interval.mean, interval.high))
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def row(model: str, found: list[Episode], compositions: list[str]) -> str:
    """Return a policy's row."""
    solved: dict[str, dict[int, float]] = {}
    for episode in found:
        at = solved.setdefault(episode.task.environment.partition("?")[0], {})
        at[episode.key.group] = float(episode.outcome.solved)
    parts, every, composed, reverse = list[float](), list[float](), list[float](), list[float]()
    for name in compositions:
        pages = [solved[f"miniwob/{page}"] for page in name.split("+")]
        for index in sorted(solved[f"miniwob/{name}"]):
            alone = [page[index] for page in pages]
            parts.append(fmean(alone))
            every.append(min(alone))
            composed.append(solved[f"miniwob/{name}"][index])
            reverse.append(solved[f"miniwob/{name}:reverse"][index])
    means = [f"{100 * fmean(values):.1f}" for values in (parts, every, composed, reverse)]
    return (
        f"| {model} | {len(composed)} | {means[0]} | {means[1]} | {means[2]} | "
        f"{percent(paired_difference(composed, every))} | {means[3]} | "
        f"{percent(paired_difference(reverse, composed))} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--of", nargs="+", default=list(COMPOSITIONS), metavar="A+B")
    parser.add_argument("--knobs", default="", help="of the environments, without the ?")
    parser.add_argument("--tasks", type=int, default=24, help="of each environment")
    options = parser.parse_args()
    print(HEAD, "| --- " * 8 + "|", sep="\n", flush=True)
    for model in options.models:
        print(row(model, episodes(model, options), options.of), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
