"""Starts from recorded states: episodes need not begin at the beginning.

These functions choose among snapshots; taking and restoring them is the environment's
part. An episode that starts from a snapshot is recorded with its own steps only.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Count, Share


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state that can be restored."""

    key: Key  # the recorded episode
    step: int  # environment steps taken before it
    progress: float  # share of the task done in it; a critic's value works as well


@component(
    Kind.CURRICULUM,
    "snapshot-clusters",
    source="Zhao et al. 2024 (SnapshotRL, S3RL)",
    status=Status.EXPERIMENTAL,
    needs={Need.SNAPSHOT, Need.PROGRESS},
)
def clustered(snapshots: Sequence[Snapshot], *, clusters: Count = 6) -> list[float]:
    """Weigh snapshots: clusters of similar progress equally, and equally within a cluster.

    Long stretches of little progress then do not crowd out rare states. The source clusters by
    the teacher's value with k-means, as here with progress, and cuts episodes from snapshots
    short; give them a small horizon. Weights are not negative and sum to 1.

    Raises:
        RecipeError: fewer than one cluster.
    """
    if clusters < 1:
        raise RecipeError(f"Snapshots cannot be put in {clusters} clusters; use 1 or more.")
    labels = _kmeans([s.progress for s in snapshots], clusters)
    sizes = {label: labels.count(label) for label in set(labels)}
    return [1 / (len(sizes) * sizes[label]) for label in labels]


def snapshot_share(step: int, *, until: int) -> float:
    """Return the share of episodes that start from snapshots at training step `step` (from 1).

    It falls linearly from 1 to 0 after `until` steps. The release of S3RL switches at once,
    after a tenth of the training.
    """
    return max(0.0, 1.0 - (step - 1) / until) if until > 0 else 0.0


def starts(
    snapshots: Sequence[Snapshot],
    count: int,
    step: int,
    *,
    until: int,
    seed: int,
    clusters: int = 6,
) -> list[Snapshot | None]:
    """Return where the `count` episodes of a training step start; None is the ordinary start.

    A function of its arguments alone: the same step gives the same starts after a resume.
    """
    if not snapshots:
        return [None] * count
    share = snapshot_share(step, until=until)
    weights = clustered(snapshots, clusters=clusters)
    rng = random.Random(f"{seed}/{step}")
    sampled = rng.choices(snapshots, weights, k=count)
    return [snapshot if rng.random() < share else None for snapshot in sampled]


@component(
    Kind.CURRICULUM,
    "backward",
    source="Salimans & Chen 2018 (backward from one demonstration)",
    status=Status.EXPERIMENTAL,
    needs={Need.SNAPSHOT},
)
def backward(
    length: int,
    results: Sequence[float],
    *,
    stride: Count = 1,
    window: Count = 16,
    threshold: Share = 0.2,
) -> int:
    """Return the step of a solved episode to start from: near its end first, then ever earlier.

    Starts `stride` steps before the end; moves back by `stride` whenever the last `window`
    results from the present start have a mean of `threshold` or more. A function of all
    results so far, so a resumed run continues where it was.

    Args:
        length: environment steps of the solved episode.
        results: success (0 or 1) of each attempt from its starts, oldest first.
        stride: steps back at a time.
        window: results that a move needs.
        threshold: mean result that a move needs (constants from memory).

    Returns:
        a step in [0, length); 0 is the ordinary start.

    Raises:
        RecipeError: a number is below 1.
    """
    if length < 1 or stride < 1 or window < 1:
        raise RecipeError(
            f"A backward curriculum got length {length}, stride {stride} and window {window}; "
            "all of them must be 1 or more."
        )
    start, since = max(0, length - stride), 0
    for end in range(1, len(results) + 1):
        if end - since >= window and fmean(results[end - window : end]) >= threshold:
            start, since = max(0, start - stride), end
    return start


def _kmeans(values: Sequence[float], count: int) -> list[int]:
    """Return a cluster number for each value; independent of their order."""
    ordered, distinct = sorted(values), sorted(set(values))
    k = min(count, len(distinct))
    centres = [distinct[(2 * i + 1) * len(distinct) // (2 * k)] for i in range(k)]
    for _ in range(100):  # in one dimension it converges in a few rounds
        members: list[list[float]] = [[] for _ in centres]
        for value in ordered:
            members[_nearest(value, centres)].append(value)
        moved = [fmean(m) if m else c for m, c in zip(members, centres, strict=True)]
        if moved == centres:
            break
        centres = moved
    return [_nearest(value, centres) for value in values]


def _nearest(value: float, centres: Sequence[float]) -> int:
    return min(range(len(centres)), key=lambda c: (abs(value - centres[c]), c))
