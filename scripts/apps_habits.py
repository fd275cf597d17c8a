"""What a policy does with apps before and after learning (docs/results/apps.md).

    python scripts/apps_habits.py RUN …

One row per phase of each run in which tasks were tested; shares with Wilson's 95 % interval.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tested_runs import tested_phases

from palaestra.evaluation.statistics.intervals import Interval
from palaestra.evaluation.statistics.tool_habits import tool_habits

HEAD = (
    "| run, phase | episodes | calls per episode | values that nobody gave "
    "| episodes with an error | solved all the same | documentation before first use |"
)


def shown(found: Interval | None, scale: float = 100.0) -> str:
    """Return a measured value with its interval."""
    if found is None:
        return "–"
    low, high = found.low * scale, found.high * scale
    return f"{found.mean * scale:.3g} ({low:.3g} to {high:.3g})"


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    options = parser.parse_args(argv)
    print(HEAD)
    print("|" + " --- |" * (HEAD.count("|") - 1))
    for name, database, phase in tested_phases(options.runs):
        found = tool_habits(database.episodes(phase))
        shares = (found.invented, found.refused, found.recovered, found.informed)
        print(
            f"| {name} | {found.episodes} | {shown(found.calls, 1)} | "
            + " | ".join(map(shown, shares))
            + " |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
