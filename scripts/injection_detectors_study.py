"""Measures detectors of prompt injections: true positives by threat class, and false ones.

    python scripts/injection_detectors_study.py --each 40 --model smollm2-135m --asked 8

Test segments have other worlds, wordings and deeds than training. A model is asked about `--asked`
segments of each class only, since it is slow; without `--model`, no language model takes part.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from palaestra.agents.registry import make_agent
from palaestra.core.task import Split
from palaestra.evaluation.detectors.detection_rates import detection_rates
from palaestra.evaluation.detectors.injection_detectors import (
    InjectionDetector,
    ModelDetector,
    RuleDetector,
    TfidfDetector,
)
from palaestra.evaluation.detectors.page_segments import WORDINGS, Segment, segments
from palaestra.models.registry import load_model

HEADS = ("", *WORDINGS)


def table(name: str, detector: InjectionDetector, held_out: list[Segment]) -> None:
    """Print a row of rates."""
    rates = detection_rates(detector, held_out)
    cells = [
        f"{100 * one.mean:.0f} ({100 * one.low:.0f}–{100 * one.high:.0f})"
        for one in (rates[head] for head in HEADS)
    ]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--each", type=int, default=40, help="segments of a class and world")
    parser.add_argument("--worlds", type=int, default=3)
    parser.add_argument("--model")
    parser.add_argument("--asked", type=int, default=8)
    options = parser.parse_args()
    parts = {
        split: [
            one for seed in range(options.worlds) for one in segments(split, seed, options.each)
        ]
        for split in (Split.TRAIN, Split.TEST)
    }
    train, held_out = parts[Split.TRAIN], parts[Split.TEST]
    seen = {one.text for one in train}
    held_out = [one for one in held_out if one.text not in seen]
    for split, found in (("training", train), ("test", held_out)):
        counts = Counter(one.threat or "clean" for one in found)
        print(f"{split}: {dict(counts)}")
    print(f"\n| detector | clean, flagged, % | {' | '.join(WORDINGS)} |")
    print("| --- |" + " --- |" * len(HEADS))
    table("rules", RuleDetector(), held_out)
    learned = TfidfDetector([one.text for one in train], [bool(one.threat) for one in train])
    table("TF-IDF", learned, held_out)
    if options.model:
        rng = random.Random(0)
        few = [
            one
            for head in HEADS
            for one in rng.sample([o for o in held_out if o.threat == head], options.asked)
        ]
        model = load_model(
            options.model, make_agent("direct"), slots=1, context=512, progress=print
        )
        table(options.model, ModelDetector(model), few)


if __name__ == "__main__":
    main()
