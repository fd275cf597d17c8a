"""Offers of help: what fixed behaviour and an expert that errs come to; a table of Markdown.

    python scripts/proactive_study.py [--env core] [--tasks 100]
    python scripts/proactive_study.py --runs RUN …

Without runs, behaviours on streams of the test split of `proactive/ENV`: silence; an offer of the
right call as soon as the person is reminded, or has answered, whatever they want; the expert, which
offers what is wanted, with a random action at some rate. With runs, the phases in which tasks were
tested. Precision, recall and false alarms are per decision (`evaluation/statistics/offers.py`),
with Wilson's 95 % interval; help is the share of wanted errands that an accepted offer did.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tested_runs import tested_phases

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split
from palaestra.environments.families.apps.surfaces import tool_name
from palaestra.environments.families.proactive.activity import APPS, Errand
from palaestra.environments.families.proactive.environment import SILENCE, Proactive
from palaestra.evaluation.statistics.intervals import Interval, wilson
from palaestra.evaluation.statistics.offers import OfferScores, offer_scores, steps_of

Behaviour = Callable[[Proactive, int], Iterator[Action]]
SILENT = Action(f"{SILENCE.name}()")
ERRORS = (0.0, 0.05, 0.2)
LONGEST = 80  # actions of an episode
HEAD = "| behaviour | streams | solved | precision | recall | false alarms | F1 | help |"


def silent(env: Proactive, number: int) -> Iterator[Action]:
    """Offer nothing."""
    while True:
        yield SILENT


def after(event: Callable[[Errand], str]) -> Behaviour:
    """Return a behaviour that offers what each errand needs, wanted or not, after an event."""

    def act(env: Proactive, number: int) -> Iterator[Action]:
        left = list(env.errands)
        while True:
            known = [e for e in left if env.world.schedule.of(event(e)).times]
            offer = None
            if known:
                left.remove(known[0])
                offer = known[0].offer(env.world)
            if offer is None:
                yield SILENT
            else:
                call = ToolCall(tool_name(offer.api), offer.arguments)
                yield Action(str(call), call)

    return act


def erring(error: float) -> Behaviour:
    """Return the behaviour of an expert that does a random action at some rate."""

    def act(env: Proactive, number: int) -> Iterator[Action]:
        rng = random.Random(f"errors {number} {error}")
        while True:
            yield sample_action(env, rng) if rng.random() < error else env.next_action()

    return act


def row(name: str, found: OfferScores, solved: list[bool], help: list[bool]) -> str:
    """Return a row of the table."""
    shares = [wilson(sum(solved), len(solved)), found.precision, found.recall, found.false_alarms]
    f1 = "–" if found.f1 is None else f"{found.f1:.2f}"
    helped = wilson(sum(help), len(help)) if help else None
    cells = [name, str(len(solved)), *map(shown, shares), f1, shown(helped)]
    return f"| {' | '.join(cells)} |"


def shown(found: Interval | None) -> str:
    """Return a share with its interval."""
    return "–" if found is None else f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"


def helped(info: Mapping[str, Any]) -> list[bool]:
    """Return for each wanted errand of an episode whether help with it was accepted."""
    return [True] * info["accepted"] + [False] * info["missed"]


def behave(name: str, act: Behaviour, env: Proactive, tasks: int) -> str:
    """Return the row of a behaviour."""
    solved, help, steps = list[bool](), list[bool](), list[Mapping[str, Any]]()
    for number in range(tasks):
        env.reset(type(env).tasks(env.spec.id).task(Split.TEST, number))
        for _, action in zip(range(LONGEST), act(env, number), strict=False):
            step = env.step(action)
            steps.append(step.info)
            if step.terminated:
                solved.append(step.success)
                help += helped(step.info)
                break
        else:
            solved.append(False)
    return row(name, offer_scores(steps), solved, help)


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", choices=list(APPS), default="core")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--runs", nargs="+", type=Path, metavar="RUN", default=[])
    options = parser.parse_args(argv)
    print(HEAD)
    print("|" + " --- |" * (HEAD.count("|") - 1))
    for name, database, phase in tested_phases(options.runs):
        found = [e for e in database.episodes(phase) if e.outcome.scored]
        ends = [e.steps[-1].transition.info for e in found if e.steps]
        help = [one for info in ends if "missed" in info for one in helped(info)]
        solved = [e.outcome.solved for e in found]
        print(row(name, offer_scores(steps_of(found)), solved, help))
    if options.runs:
        return 0
    behaviours: dict[str, Behaviour] = {
        "never offers": silent,
        "offers after each reminder": after(lambda errand: errand.reminded),
        "offers after each answer": after(lambda errand: errand.decided),
        **{f"expert, {error:.0%} random": erring(error) for error in ERRORS},
    }
    env = Proactive(options.env)
    for name, act in behaviours.items():
        print(behave(name, act, env, options.tasks), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
