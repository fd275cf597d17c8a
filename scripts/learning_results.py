"""A table of training runs for docs/results, from their report.json files.

python scripts/learning_results.py runs/default-1 runs/default-2 …
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def cell(interval: dict[str, float] | None, sign: str = "") -> str:
    """Return a share as per cent with its interval."""
    if interval is None:
        return "–"
    mean, low, high = (100 * interval[key] for key in ("mean", "low", "high"))
    return f"{mean:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def main(folders: list[str]) -> None:
    print(
        "| recipe, seed | base | imitation | RL | RL − imitation | transfer: imitation | "
        "transfer: RL | minutes | peak GB |"
    )
    print("| --- " * 9 + "|")
    for folder in map(Path, folders):
        report = json.loads((folder / "report.json").read_text())
        success, transfer = report["success"], report["transfer"]["scores"]
        cells = [
            folder.name.replace("-", ", "),
            *(cell(success[stage]) for stage in ("base", "imitation", "rl")),
            cell(report["paired"]["rl_minus_imitation"], "+"),
            *(cell(transfer.get(stage, {}).get("success")) for stage in ("imitation", "rl")),
            f"{report['seconds'] / 60:.1f}",
            f"{report['peak_memory_bytes'] / 1e9:.1f}",
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
