"""`palaestra agents learn`: train a planner or a scorer for searches on recorded episodes."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

EXAMPLE = "palaestra agents learn policy runs/eval-1 --role planner --out runs/planner"
KINDS = ("policy", "q", "value")
USES = {
    "policy": "--model {0} or --role {1}={0}",
    "q": "--agent 'beam?scorer=learned' --role scorer={0}",
    "value": "--agent 'best_first?scorer=learned' --role scorer={0}",
}


def configure(verbs: _SubParsersAction[ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "learn",
        help="learn a planner, or a scorer for searches, from recorded episodes",
        epilog=f"Example: {EXAMPLE}",
    )
    parser.add_argument(
        "kind", choices=KINDS,
        help="policy: DPO on a role's better and worse replies; q: the same, as a scorer of "
        "actions; value: a scorer of states",
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", help="with several episodes of each task")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where to write it")
    parser.add_argument("--role", default="agent", metavar="NAME", help="whose replies (agent)")
    parser.add_argument(
        "--model",
        default="",
        metavar="M",
        help="model to start from (default: the one that replied)",
    )
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="e.g. rl/3, or eval for all that start with eval/ (r) (default: all)",
    )  # fmt: skip
    parser.add_argument("--score", default="success", help="success, reward or progress")
    parser.add_argument(
        "--gap", type=float, default=0.0, metavar="X", help="minimum difference of a pair"
    )
    parser.add_argument("--updates", type=int, default=60, metavar="N", help="default: 60")
    parser.add_argument("--batch", type=int, default=16, metavar="N", help="default: 16")
    parser.add_argument("--learning-rate", type=float, default=1e-5, metavar="X", help="1e-5")
    parser.add_argument("--beta", type=float, default=0.1, metavar="X", help="of DPO (0.1)")
    parser.add_argument("--held-out", type=float, default=0.2, metavar="X", help="share (0.2)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    _check(options)
    from palaestra.cli.export_command import choose
    from palaestra.runtime.progress import Reporter
    from palaestra.training.from_records import Lesson, learn
    from palaestra.training.trace import open_recorded

    recorded, _ = open_recorded(options.run)
    try:
        phases = choose(recorded.phases(), options.phases)
        episodes = [episode for phase in phases for episode in recorded.episodes(phase)]
    finally:
        recorded.close()
    lesson = Lesson(
        kind=options.kind,
        role=options.role,
        score=options.score,
        gap=options.gap,
        updates=options.updates,
        batch=options.batch,
        learning_rate=options.learning_rate,
        beta=options.beta,
        held_out=options.held_out,
        seed=options.seed,
    )
    found = learn(episodes, lesson, Path(options.out), Reporter(), options.model)
    if options.json:
        print(json.dumps({"out": options.out, **asdict(found)}))
        return 0
    what = "states" if options.kind == "value" else "pairs"
    print(
        f"{found.items} {what} of {len(episodes)} episodes, {options.updates} updates of "
        f"{found.base} in {found.seconds:.0f} s: loss {found.first_loss:.4f} -> "
        f"{found.last_loss:.4f}"
    )
    if found.held_score is not None:
        measure = "of the variance explained" if options.kind == "value" else "ranked right"
        print(f"{found.held} held out: {found.held_score:.0%} {measure}")
    print(f"{options.out}: use it with {USES[options.kind].format(options.out, options.role)}")
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in ("updates", "batch"):
        if getattr(options, name) < 1:
            raise InputError(f"--{name} {getattr(options, name)} trains nothing; give 1 or more.")
    for name in ("learning_rate", "beta"):
        if not getattr(options, name) > 0:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {getattr(options, name):g} must be more than 0.")
    if not 0 <= options.held_out < 1:
        raise InputError(f"--held-out {options.held_out:g} is a share: from 0 to below 1.")
