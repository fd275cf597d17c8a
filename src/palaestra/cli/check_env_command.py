"""`palaestra check-env`: test an environment against its contract, clause by clause."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaestra.environments.conformance.checking import Finding

EXAMPLE = "palaestra check-env babyai/GoToLocalS5N2"
SHOWN, WIDTH = 12, 160  # last events of a trace, and characters of each


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="see `palaestra list environments`")
    parser.add_argument(
        "--deep", action="store_true", help="also a thousand episodes, every oracle, memory"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per clause")


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.conformance.checking import check_environment

    broken = total = 0
    for finding in check_environment(options.id, options.deep):
        total += 1
        broken += not finding.holds
        if options.json:
            print(json.dumps(asdict(finding)), flush=True)
        else:
            _show(finding)
    if not options.json:
        verdict = f"breaks {broken} of" if broken else "keeps all"
        print(f"\n{options.id} {verdict} {total} clauses.")
    return 1 if broken else 0


def _show(finding: Finding) -> None:
    mark = "ok    " if finding.holds else "BROKEN"
    print(f"{mark} {finding.clause} ({finding.seconds:.1f} s)", flush=True)
    if finding.holds:
        return
    print(f"       demanded: {finding.demands}\n       found: {finding.broken}")
    if finding.trace:
        left = len(finding.trace) - SHOWN
        before = f", after {left} more" if left > 0 else ""
        print(f"       the smallest trace found{before}:")
    for happening in finding.trace[-SHOWN:]:
        saw = " / ".join(happening.saw.split("\n"))
        line = f"environment {happening.environment}: {happening.did} -> {saw}"
        print("         " + (line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"))
