"""The table of docs/results/worlds.md: the recipes of recipes/worlds, over seeds.

    for r in recipes/worlds/*.toml; do for s in 1 2 3; do
        palaestra train $r --seed $s --run runs/worlds/$(basename $r .toml)-$s; done; done
    python scripts/worlds_table.py runs/worlds

Success is the mean over seeds, with the lowest and the highest of them. The last column counts the
seeds whose paired 95 % interval of RL minus imitation lies above zero, and below it.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any


def main(root: Path) -> None:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(root.glob("*/report.json")):
        name = re.sub(r"-\d+$", "", file.parent.name)
        found[name].append(json.loads(file.read_text()))
    print("| recipe | environment | seeds | untrained | imitation | RL | above, below | minutes |")
    print("| --- " * 8 + "|")
    for name, reports in found.items():
        differences = [report["paired"]["rl_minus_imitation"] for report in reports]
        present = [each for each in differences if each is not None]
        cells = [
            f"`{name}`",
            f"`{reports[0]['recipe']['environment']['id']}`",
            str(len(reports)),
            *(_spread(reports, stage) for stage in ("base", "imitation", "rl")),
            f"{sum(d['low'] > 0 for d in present)}, {sum(d['high'] < 0 for d in present)}",
            f"{fmean(report['seconds'] for report in reports) / 60:.1f}",
        ]
        print("| " + " | ".join(cells) + " |")


def _spread(reports: list[dict[str, Any]], stage: str) -> str:
    """Return success at that stage in per cent: the mean over seeds, and their range."""
    scores = [report["success"][stage] for report in reports]
    shares = [100 * score["mean"] for score in scores if score is not None]
    if not shares:
        return "–"
    return f"{fmean(shares):.1f} ({min(shares):.1f} to {max(shares):.1f})"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
