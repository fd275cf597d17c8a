"""Cases of candidates: a partner is to be chosen from a pool by features of several kinds.

The utility of a candidate is the sum of its scores in the kinds that the request names, so the best
one is known. Source: Li et al. 2025 (PartnerMAS).
"""

from __future__ import annotations

import random
from itertools import combinations

from palaestra.environments.families.cases.case import Case, among

PARTNER = (
    "Choose a partner. Say which three kinds of features the request is about (in the order of the "
    "table), who is best in each of these kinds, and who is best in their sum."
)
KINDS = ("finance", "network", "skill", "growth", "risk")
NEEDS = {
    "finance": "deep pockets",
    "network": "many contacts",
    "skill": "know-how",
    "growth": "fast growth",
    "risk": "steady nerves",
}
NAMES = ("Ada", "Bo", "Cy", "Dee", "Eli", "Flo")


def partner(rng: random.Random) -> Case:
    """Return a request and a pool of six candidates, in each kind with different scores."""
    while True:
        scores = {kind: rng.sample(range(1, 60), len(NAMES)) for kind in KINDS}
        wanted = sorted(rng.sample(range(len(KINDS)), 3))
        kinds = [KINDS[number] for number in wanted]
        totals = [sum(scores[kind][n] for kind in kinds) for n in range(len(NAMES))]
        if totals.count(max(totals)) == 1:
            break
    lines = [
        f"{name}: {', '.join(f'{kind} {scores[kind][n]}' for kind in KINDS)}"
        for n, name in enumerate(NAMES)
    ]
    plans = [", ".join(chosen) for chosen in combinations(KINDS, 3)]
    best = {f"best-{n}": scores[kind].index(max(scores[kind])) for n, kind in enumerate(kinds, 1)}
    best["partner"] = totals.index(max(totals))
    return Case(
        f"We need {', '.join(NEEDS[kind] for kind in kinds)}.\n" + "\n".join(lines),
        {
            "kinds": among(", ".join(kinds), plans),
            **{part: among(NAMES[number], NAMES) for part, number in best.items()},
        },
    )
