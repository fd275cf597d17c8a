"""Measures the judge of `websites`: do its verdicts match the defects that were injected?

    python scripts/websites_study.py --sites 3

Each site promises all ten functions. Whole references (one of each layout) must pass; each defect
must fail its function and those that need it, and no other. No language model takes part.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from palaestra.environments.families.websites.reference_site import (
    LAYOUTS,
    Layout,
    SitePlan,
    drawn_plan,
    site_files,
)
from palaestra.environments.families.websites.site_functions import FUNCTIONS, Defect, broken_by
from palaestra.environments.families.websites.site_judge import SiteJudge
from palaestra.evaluation.statistics.intervals import wilson


def failing(judge: SiteJudge, plan: SitePlan, layout: Layout, defect: Defect | None) -> set[str]:
    """Return the functions that the judge finds not to hold."""
    files = site_files(plan, layout, defect)
    found = judge.findings({path: text.encode() for path, text in files.items()}, plan)
    return {one.function for one in found if not one.holds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sites", type=int, default=3)
    options = parser.parse_args()
    judge, begun = SiteJudge(), time.process_time()
    counts = Counter[str]()
    for number in range(options.sites):
        plan = drawn_plan(random.Random(f"study {number}"), len(FUNCTIONS))
        for layout in LAYOUTS:
            found = failing(judge, plan, layout, None)
            counts["whole"] += 1
            counts["whole passed"] += not found
            counts["held"] += len(FUNCTIONS)
            counts["false alarms"] += len(found)
        layout = LAYOUTS[number % len(LAYOUTS)]
        for name, function in FUNCTIONS.items():
            for defect in function.defects:
                broken = broken_by(name, plan.functions)
                found = failing(judge, plan, layout, defect)
                counts["defects"] += 1
                counts["exact"] += found == broken
                counts["broken"] += len(broken)
                counts["found"] += len(found & broken)
                counts["held"] += len(FUNCTIONS) - len(broken)
                counts["false alarms"] += len(found - broken)
                if found != broken:
                    print(f"site {number}, {name} {defect.what}: {found} and not {set(broken)}")
        print(f"{number + 1} sites of {options.sites}: {dict(counts)}", flush=True)
    judge.close()
    for what, part, whole in (
        ("whole sites that pass", "whole passed", "whole"),
        ("defects whose verdict is exact", "exact", "defects"),
        ("broken functions found", "found", "broken"),
        ("functions that hold and were called broken", "false alarms", "held"),
    ):
        found = wilson(counts[part], counts[whole])
        between = f"{100 * found.low:.1f} to {100 * found.high:.1f} %"
        print(f"{what}: {counts[part]} of {counts[whole]} ({between})")
    print(f"processor time of this process: {time.process_time() - begun:.0f} s")


if __name__ == "__main__":
    main()
