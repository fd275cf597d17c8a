"""Measures the search of `examples/search_workflow.py`, and writes docs/results/teams.md.

    python scripts/workflow_study.py [--seeds 3] [--write]

The tree search gets several budgets of model calls. A random search, which plays complete workflows
and takes the one with the best mean, gets the same. What they find is played on held-out tasks,
like a fixed workflow.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import search_workflow as example  # noqa: E402
from results_page import write_table  # noqa: E402

HELD_OUT = 1000
Flow = tuple[str, ...]


def tree(folder: Path, calls: int, seed: int) -> Flow:
    """Return what the tree search finds."""
    with redirect_stdout(StringIO()):
        return example.search(folder, calls, seed)


def at_random(folder: Path, calls: int, seed: int) -> Flow:
    """Return the random workflow with the best mean success, of equals the one played first."""
    rng, spent, number, played = random.Random(seed), 0.0, 0, dict[Flow, list[float]]()
    while spent < calls:
        flow: Flow = ()
        while not flow or flow[-1] not in example.ENDINGS:
            flow = (*flow, rng.choice(example.choices(flow)))
        number += 1
        results, took = example.play(flow, example.TASKS, "train", number, folder)
        spent += took
        played.setdefault(flow, []).append(results.success)
    return max(played, key=lambda flow: sum(played[flow]) / len(played[flow]))


def row(name: str, calls: int, find: Callable[[Path, int, int], Flow], seeds: int) -> str:
    """Return the row of a search."""
    found, success, replies = dict[Flow, int](), [], []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            flow = find(Path(folder), calls, seed)
            results, took = example.play(flow, HELD_OUT, "test", 0, Path(folder))
        found[flow] = found.get(flow, 0) + 1
        success.append(results.success)
        replies.append(took / HELD_OUT)
    best = max(found, key=lambda flow: found[flow])
    return (
        f"| {name} | {calls or '–'} | {sum(success) / seeds:.3f} | "
        f"{min(success):.3f} to {max(success):.3f} | {sum(replies) / seeds:.2f} | "
        f"{', '.join(best)} ({found[best]} of {seeds}) |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    rows = [
        "| search | model calls | held-out success, mean | of single seeds | replies | "
        "found most often |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, calls, find, seeds in [
        ("none: a fixed workflow", 0, lambda *_: example.FIXED, 1),
        ("random", 8000, at_random, options.seeds),
        ("tree", 8000, tree, options.seeds),
        ("tree", 16000, tree, options.seeds),
    ]:
        rows.append(row(name, calls, find, seeds))
        print(rows[-1], flush=True)
    if options.write:
        write_table("teams.md", "workflow", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
