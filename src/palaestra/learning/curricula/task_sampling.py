"""Task sampling: which of a finite set of tasks, levels or variants to try next.

Each rule turns the tasks' histories into one weight per task; weights are not negative and
sum to 1. `sample_tasks` samples tasks by weight. All rules treat tasks alike: permuting the
tasks permutes the weights.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Annotated

from palaestra.core.errors import InputError, RecipeError
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Count, Decay, Positive, Range, Share


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """The history of one task; oldest first."""

    results: tuple[float, ...] = ()  # success or score of each attempt, in [0, 1]
    errors: tuple[float, ...] = ()  # estimates of a model's error on it (WAKER), any unit


@component(Kind.CURRICULUM, "uniform", source="domain randomisation", status=Status.OURS)
def uniform(histories: Sequence[TaskHistory]) -> list[float]:
    """Weigh all tasks equally."""
    return _mixed([0.0] * len(histories), 1.0)


@component(
    Kind.CURRICULUM,
    "learnability",
    source="sampling for learnability (Rutherford et al. 2024), as in Syllabus with 'dist'",
    status=Status.RELEASE,
)
def learnability(
    histories: Sequence[TaskHistory],
    *,
    window: Count = 32,
    prior: Positive = 1.0,
    share: Share = 0.1,
) -> list[float]:
    """Prefer tasks at the frontier: in proportion to p (1 - p), the variance of success.

    p is the mean of the last `window` results with `prior` successes and failures added, so
    that an untried task counts as one half; Syllabus measures p in evaluations instead, and
    the paper takes the tasks of the highest score alike. AdA's fitness (comparing scores
    between trials) needs several trials per episode and is not this.

    Args:
        histories: results per task.
        window: how many of the latest results count.
        prior: strength of the prior, above 0.
        share: of samples that are uniform, so that no task is forgotten.
    """
    if prior <= 0:
        raise RecipeError(f"The prior of learnability sampling is {prior}; use a number above 0.")
    scores = []
    for history in histories:
        recent = _recent(history.results, window)
        p = (math.fsum(recent) + prior) / (len(recent) + 2 * prior)
        scores.append(p * (1 - p))
    return _mixed(scores, share)


@component(
    Kind.CURRICULUM,
    "dart",
    source="Li et al. 2025 (DART): less sampling of tasks that are solved",
    status=Status.EXPERIMENTAL,
)
def dart(
    histories: Sequence[TaskHistory],
    *,
    window: Count = 32,
    threshold: Share = 0.6,
    floor: Share = 0.25,
) -> list[float]:
    """Sample by difficulty: evenly up to a success rate of `threshold`, then ever more rarely.

    Beyond the threshold the weight falls linearly, to `floor` of the others' at a rate of 1.
    The threshold is from memory, the linear fall is ours.
    """
    return _mixed([_need(h, window, threshold, floor) for h in histories], 0.0)


@component(
    Kind.CURRICULUM,
    "arpo",
    source="Lu et al. 2025 (ARPO): tasks that the base model sometimes solves",
    status=Status.EXPERIMENTAL,
)
def solved_before(histories: Sequence[TaskHistory]) -> list[float]:
    """Sample evenly the tasks that were ever solved in full or part; all tasks if none was."""
    return _mixed([float(any(r > 0 for r in h.results)) for h in histories], 0.0)


@component(
    Kind.CURRICULUM,
    "alp",
    source="TeachMyAgent's riac.py (compute_alp) and alp_gmm.py (the share), for finite levels",
    status=Status.RELEASE,
)
def learning_progress(
    histories: Sequence[TaskHistory],
    *,
    window: Annotated[int, Range(least=3)] = 200,
    share: Share = 0.2,
) -> list[float]:
    """Prefer levels where success changes: in proportion to the change of the mean result.

    The absolute change is between the older and the newer half of the last `window` results (the
    older half is the longer if they are odd), 0 for fewer than three. It counts forgetting as
    much as learning, and gives levels that are out of reach nothing but the uniform share. The
    benchmark's teachers work on continuous parameters; here each level is its own region.

    Args:
        histories: results per level.
        window: as in RIAC.
        share: of samples that are uniform, as in ALP-GMM.
    """
    scores = []
    for history in histories:
        recent = _recent(history.results, window)
        newer = len(recent) // 2
        progress = 0.0
        if len(recent) > 2:
            progress = abs(fmean(recent[-newer:]) - fmean(recent[:-newer]))
        scores.append(progress)
    return _mixed(scores, share)


@component(
    Kind.CURRICULUM,
    "waker",
    source="Rigter et al. 2024 (WAKER-M); waker.py of its release",
    status=Status.RELEASE,
    needs={Need.ERROR},
)
def waker(
    histories: Sequence[TaskHistory], *, temperature: Positive = 1.0, share: Share = 0.2
) -> list[float]:
    """Prefer variants that the model knows worst: a softmax over the standardised latest error.

    Standardised by the standard deviation over n plus 1e-6, over the variants with an
    estimate; the others get the uniform share only. Any estimate of regret works: the error
    of a world model (as in the source, which smooths it from update to update), of a critic, or
    of a probe.
    """
    known = {i: h.errors[-1] for i, h in enumerate(histories) if h.errors}
    if not known:
        return uniform(histories)
    mean, scale = fmean(known.values()), pstdev(known.values()) + 1e-6
    return _boltzmann(
        len(histories), {i: (e - mean) / scale for i, e in known.items()}, temperature, share
    )


@component(
    Kind.CURRICULUM,
    "waker-reduction",
    source="Rigter et al. 2024 (WAKER-R); waker.py and env_sampling.py of its release",
    status=Status.RELEASE,
    needs={Need.ERROR},
)
def waker_reduction(
    histories: Sequence[TaskHistory],
    *,
    temperature: Positive = 0.5,
    share: Share = 0.2,
    memory: Decay = 0.95,
) -> list[float]:
    """Prefer variants whose error falls most: a softmax over the smoothed reduction of the error.

    Reductions between estimates are smoothed, `c = memory * c + (1 - memory) * (before -
    after)` from 0, and divided by the mean of their absolute values. Variants with fewer than
    two estimates get the uniform share only.
    """
    known: dict[int, float] = {}
    for i, history in enumerate(histories):
        for before, after in pairwise(history.errors):
            known[i] = memory * known.get(i, 0.0) + (1 - memory) * (before - after)
    if not known:
        return uniform(histories)
    scale = fmean(abs(c) for c in known.values()) or 1.0
    return _boltzmann(len(histories), {i: c / scale for i, c in known.items()}, temperature, share)


def sample_tasks(weights: Sequence[float], count: int, *, seed: int) -> list[int]:
    """Sample the numbers of `count` tasks with replacement; the same for the same seed.

    Raises:
        InputError: no weight is positive, or one is negative or not finite.
    """
    if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise InputError(
            "Tasks cannot be sampled: weights must be finite, not negative, and not all zero."
        )
    return random.Random(f"{seed}/draw").choices(range(len(weights)), weights, k=count)


def _recent(results: Sequence[float], window: int) -> Sequence[float]:
    if window < 1:
        raise RecipeError(f"The window of a curriculum is {window} results; use 1 or more.")
    return results[-window:]


def _need(history: TaskHistory, window: int, threshold: float, floor: float) -> float:
    """Return how much of the full effort a task still deserves, from 1 down to `floor`."""
    if not 0 <= floor <= 1:
        raise RecipeError(f"The floor of DART sampling is {floor}; use a number in [0, 1].")
    recent = _recent(history.results, window)
    rate = fmean(recent) if recent else 0.0
    if rate <= threshold or threshold >= 1:
        return 1.0
    return 1.0 - (1.0 - floor) * (rate - threshold) / (1.0 - threshold)


def _mixed(scores: Sequence[float], share: float) -> list[float]:
    """Weigh in proportion to the scores (evenly if all are zero), with a uniform `share`."""
    if not scores:
        raise InputError("The curriculum has no tasks to choose from; give it at least one.")
    if not 0 <= share <= 1:
        raise RecipeError(f"The uniform share of a curriculum is {share}; use a number in [0, 1].")
    even, total = 1 / len(scores), math.fsum(scores)
    if total <= 0:
        return [even] * len(scores)
    return [share * even + (1 - share) * score / total for score in scores]


def _boltzmann(
    count: int, values: dict[int, float], temperature: float, share: float
) -> list[float]:
    if temperature <= 0:
        raise RecipeError(f"The temperature of WAKER is {temperature}; use a number above 0.")
    highest = max(values.values())
    scores = [0.0] * count
    for i, value in values.items():
        scores[i] = math.exp((value - highest) / temperature)
    return _mixed(scores, share)
