"""One-factor perturbations: what a success depended on, and how much of it survives faults.

The same agent does the same tasks in the world as it is and in worlds with one thing changed (a
knob of `environments/wrappers.py`). Robustness is the success with the fault over the success
without it, paired by task. Chance comes from the tasks' seeds, so equal calls give equal numbers.
One factor at a time: after C3-Bench (2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.task import Task
from palaestra.environments import wrappers
from palaestra.evaluation.statistics import (
    Interval,
    paired_difference,
    paired_scores,
    success_interval,
    task_scores,
)
from palaestra.rollout.runner import Job, Rollout

FACTORS: dict[str, str] = {
    "errors": "errors=0.2",  # a tool's passing errors: results go missing
    "stale": "stale=0.2",  # results are those of before: changed results
    "partial": "partial=0.2",  # results lose their second half
    "latency": "latency=0.05",  # answers are late
    "diff": "observation=diff",  # only what is new is told
}
"""The factors where none are named; each is a query behind the environment's id."""

PLAIN = "as it is"


@dataclass(frozen=True, slots=True)
class Factor:
    """How the agent did with one thing changed."""

    name: str
    query: str  # behind the environment's id; empty for the world as it is
    success: Interval | None
    difference: Interval | None  # success with it, less success without, paired by task
    robustness: Interval | None  # success with it over success without; None where that is 0
    turns: float  # mean of the scored episodes


def changed(environment: str, query: str) -> str:
    """The environment's id with one more knob.

    Raises:
        InputError: the knob is set already, or is none.
    """
    mark = "&" if "?" in environment else "?"
    asked = f"{environment}{mark}{query}" if query else environment
    wrappers.split(asked)
    return asked


async def robustness(
    rollout: Rollout,
    environment: str,
    tasks: Sequence[Task],
    factors: Mapping[str, str] = FACTORS,
) -> list[Factor]:
    """The world as it is, then with each factor.

    Args:
        rollout: how episodes are lived; its store is not used.
        environment: the id.
        tasks: of that environment.
        factors: name to query.

    Raises:
        InputError: a factor is no knob, or a knob that is set already.
        TooManyFaults: most episodes of one factor broke.
    """
    names = {PLAIN: "", **factors}
    worlds = {name: changed(environment, query) for name, query in names.items()}
    lived: dict[str, list[Episode]] = {}
    for name, world in worlds.items():
        jobs = [
            Job(Key(f"robustness/{name}", i), replace(task, environment=world))
            for i, task in enumerate(tasks)
        ]
        lived[name] = await replace(rollout, store=None).run(jobs)
    return [factor(name, names[name], of, lived[PLAIN]) for name, of in lived.items()]


def factor(name: str, query: str, with_it: Sequence[Episode], plain: Sequence[Episode]) -> Factor:
    """One factor's numbers from the episodes with it and without it, on the same tasks."""
    a, b = paired_scores(task_scores(with_it), task_scores(plain))
    scored = [episode for episode in with_it if episode.outcome.scored]
    turns = sum(len(episode.steps) for episode in scored) / max(1, len(scored))
    success = success_interval(list(task_scores(with_it).values()))
    if not query:
        return Factor(name, query, success, None, None, turns)
    try:
        difference = paired_difference(a, b)
    except GroupTooSmall:
        difference = None
    return Factor(name, query, success, difference, ratio(a, b), turns)


def ratio(
    a: Sequence[float | None],
    b: Sequence[float | None],
    *,
    seed: int = 0,
    samples: int = 10_000,
) -> Interval | None:
    """The mean of `a` over the mean of `b`, with a bootstrap over pairs.

    Args:
        a: success of each task with the fault; None where there is no result.
        b: the same tasks without it.
        seed: of the resampling.
        samples: resamples; those in which `b` has no success are left out.

    Returns:
        None without two pairs, or where `b` has no success at all.
    """
    if len(a) != len(b):
        raise InputError(f"A ratio needs the same tasks on both sides; got {len(a)} and {len(b)}.")
    pairs = np.asarray(
        [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    )
    if len(pairs) < 2 or pairs[:, 1].sum() <= 0:
        return None
    middle = float(pairs[:, 0].sum() / pairs[:, 1].sum())
    drawn = np.random.default_rng(seed).integers(len(pairs), size=(samples, len(pairs)))
    sums = pairs[drawn].sum(axis=1)
    kept = sums[sums[:, 1] > 0]
    low, high = np.quantile(kept[:, 0] / kept[:, 1], [0.025, 0.975])
    return Interval(middle, min(float(low), middle), max(float(high), middle), len(pairs))
