"""One-factor perturbations: what a success depended on, and how much of it survives faults.

The same agent runs the same tasks in the plain environment and in copies with one factor changed
(a knob of `environments/wrappers/knobs.py`). Robustness is the success with the fault over the
success without it, paired by task. Randomness comes from the tasks' seeds, so equal calls give
equal numbers. One factor at a time: after C3-Bench (2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.task import Task
from palaestra.environments.wrappers import knobs
from palaestra.evaluation.statistics.intervals import (
    Interval,
    paired_difference,
    paired_scores,
    success_interval,
    task_scores,
)
from palaestra.rollout.runner import Job, Rollout

FACTORS: dict[str, str] = {
    "errors": "errors=0.2",  # transient tool errors: results go missing
    "stale": "stale=0.2",  # results repeat earlier ones
    "partial": "partial=0.2",  # results lose their second half
    "latency": "latency=0.05",  # answers are late
    "diff": "observation=diff",  # observations contain only what is new
}
"""The default factors; each value is a query appended to the environment's id."""

PLAIN = "as it is"


@dataclass(frozen=True, slots=True)
class Factor:
    """The agent's results with one factor changed."""

    name: str
    query: str  # appended to the environment's id; empty for the plain environment
    success: Interval | None
    difference: Interval | None  # success with the factor minus success without, paired by task
    robustness: Interval | None  # success with the factor over success without; None if that is 0
    turns: float  # mean of the scored episodes


def changed(environment: str, query: str) -> str:
    """Return the environment's id with one more knob.

    Raises:
        InputError: the knob is set already, or does not exist.
    """
    mark = "&" if "?" in environment else "?"
    asked = f"{environment}{mark}{query}" if query else environment
    knobs.split(asked)
    return asked


async def robustness(
    rollout: Rollout,
    environment: str,
    tasks: Sequence[Task],
    factors: Mapping[str, str] = FACTORS,
) -> list[Factor]:
    """Evaluate the plain environment, then the environment with each factor.

    Args:
        rollout: runs the episodes; its store is not used.
        environment: the id.
        tasks: of that environment.
        factors: name to query.

    Raises:
        InputError: a factor is not a knob, or is a knob that is set already.
        TooManyFaults: most episodes of one factor broke.
    """
    names = {PLAIN: "", **factors}
    ids = {name: changed(environment, query) for name, query in names.items()}
    episodes: dict[str, list[Episode]] = {}
    for name, id in ids.items():
        jobs = [
            Job(Key(f"robustness/{name}", i), replace(task, environment=id))
            for i, task in enumerate(tasks)
        ]
        episodes[name] = await replace(rollout, store=None).run(jobs)
    return [factor(name, names[name], of, episodes[PLAIN]) for name, of in episodes.items()]


def factor(name: str, query: str, with_it: Sequence[Episode], plain: Sequence[Episode]) -> Factor:
    """Compute one factor's results from the episodes with and without it, on the same tasks."""
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
    """Return the mean of `a` over the mean of `b`, with a bootstrap over pairs.

    Args:
        a: success of each task with the fault; None without a result.
        b: the same tasks without it.
        seed: of the resampling.
        samples: resamples; those in which `b` has no success are dropped.

    Returns:
        None with fewer than two pairs, or if `b` has no success at all.
    """
    if len(a) != len(b):
        raise InputError(
            f"`a` and `b` have {len(a)} and {len(b)} tasks; pass the same tasks in both."
        )
    pairs = np.asarray(
        [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    )
    if len(pairs) < 2 or pairs[:, 1].sum() <= 0:
        return None
    middle = float(pairs[:, 0].sum() / pairs[:, 1].sum())
    sampled = np.random.default_rng(seed).integers(len(pairs), size=(samples, len(pairs)))
    sums = pairs[sampled].sum(axis=1)
    valid = sums[sums[:, 1] > 0]
    low, high = np.quantile(valid[:, 0] / valid[:, 1], [0.025, 0.975])
    return Interval(middle, min(float(low), middle), max(float(high), middle), len(pairs))
