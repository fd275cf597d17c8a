"""The gain of RL with the true reward and with control rewards, over training seeds.

python scripts/control_results.py runs/quick-true-1 runs/quick-coin-1 …

One table row for each run (from its report.json), then each arm's mean gain of RL over imitation
with a 95 % bootstrap interval over training seeds (rliable's), and its first and last entropy.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from palaestra.evaluation.statistics.aggregates import bootstrap, mean


def main(folders: list[str]) -> None:
    arms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for folder in folders:
        report = json.loads((Path(folder) / "report.json").read_text())
        arms[report["recipe"]["rl"].get("control") or "true reward"].append(report)
    print("| reward | seed | imitation | RL | RL − imitation, over tasks | entropy: first, last |")
    print("| --- " * 6 + "|")
    for arm, reports in arms.items():
        for report in sorted(reports, key=lambda r: int(r["recipe"]["seed"])):
            print("| " + " | ".join([arm, str(report["recipe"]["seed"]), *_row(report)]) + " |")
    print("\n| reward | seeds | imitation | RL | RL − imitation, over seeds |")
    print("| --- " * 5 + "|")
    for arm, reports in arms.items():
        print("| " + " | ".join([arm, str(len(reports)), *_over_seeds(reports)]) + " |")


def _row(report: dict[str, Any]) -> list[str]:
    gain = report["paired"]["rl_minus_imitation"]
    entropies = [step["entropy"] for step in report["curve"] if step.get("entropy") is not None]
    return [
        *(f"{100 * report['success'][of]['mean']:.1f}" for of in ("imitation", "rl")),
        f"{100 * gain['mean']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]",
        f"{entropies[0]:.2f}, {entropies[-1]:.2f}" if entropies else "–",
    ]


def _over_seeds(reports: list[dict[str, Any]]) -> list[str]:
    before, after = (
        [report["success"][of]["mean"] for report in reports] for of in ("imitation", "rl")
    )
    gains = [b - a for a, b in zip(before, after, strict=True)]
    return [_cell(before), _cell(after), _cell(gains, "+")]


def _cell(scores: list[float], sign: str = "") -> str:
    if len(scores) < 2:
        return f"{100 * scores[0]:{sign}.1f}"
    found = bootstrap([[score] for score in scores], mean)[0]
    bounds = f"[{100 * found.low:{sign}.1f}, {100 * found.high:{sign}.1f}]"
    return f"{100 * found.mean:{sign}.1f} {bounds}"


if __name__ == "__main__":
    main(sys.argv[1:])
