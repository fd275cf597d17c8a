"""Filters of what an update leaves out.

A filter is a registered function of kind `filter`: from the groups of a batch to one
flag per group, true where the group is kept. It depends on what the rollouts earned,
never on the order of groups or of rollouts. Filtered groups must still be logged, or
the success curve is biased; `discarded` is the figure to watch.

Judgements per rollout are plain functions at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev
from typing import Literal

from torch import Tensor

from palaestra.core.errors import RecipeError
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import SomeShare

Group = Sequence[Trajectory]


@component(Kind.FILTER, "all", source="no filter", status=Status.OURS)
def keep_all(groups: Sequence[Group]) -> list[bool]:
    """Keep every group."""
    return [True] * len(groups)


@component(
    Kind.FILTER,
    "dapo",
    source="Yu et al. 2025 (DAPO, dynamic sampling), as in verl",
    status=Status.RELEASE,
    needs={Need.GROUP},
)
def varied(
    groups: Sequence[Group], *, metric: Literal["success", "total"] = "success"
) -> list[bool]:
    """Keep groups whose rollouts do not all score the same.

    Judge by the task's own metric: a shaped reward makes nearly every group look varied. With
    several players, judge by all their returns: success is a return above 0.
    The filter prefers tasks of medium difficulty, and it hides a broken reward, which
    shows as a high share of `discarded` groups only. A group of one is discarded.

    Args:
        groups: any number of groups, of any sizes.
        metric: `success`, or `total` for the undiscounted return.

    Raises:
        RecipeError: another metric.
    """
    if metric not in ("success", "total"):
        raise RecipeError(f"The filter 'dapo' has no metric '{metric}'; use success or total.")
    scores = [[_scored(trajectory, metric) for trajectory in group] for group in groups]
    return [any(score != of[0] for score in of) for of in scores]


@component(
    Kind.FILTER,
    "starpo",
    source="Wang et al. 2025 (StarPO-S), RAGEN release",
    status=Status.RELEASE,
    needs={Need.GROUP},
)
def most_varied(groups: Sequence[Group], *, share: SomeShare = 0.25) -> list[bool]:
    """Keep the share of groups whose undiscounted returns vary most.

    `int(share * groups)` are kept, as in the release, but at least one, where the release
    would keep none; a group of one is never kept. In the release the returns may already be
    normalised in place, and then all groups vary alike; here they are always the raw ones.
    Among groups that vary equally the one with the smaller key comes first, so that order
    does not matter.

    Raises:
        RecipeError: the share is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise RecipeError(f"The filter 'starpo' keeps a share in (0, 1], not {share}.")
    count = max(1, math.floor(share * len(groups) + 1e-9))  # 0.29 * 100 is 28.999…
    ranks = sorted(
        (-spread(group), min(str(t.key) for t in group), i)
        for i, group in enumerate(groups)
        if len(group) > 1
    )
    kept = {i for _, _, i in ranks[:count]}
    return [i in kept for i in range(len(groups))]


def spread(group: Group) -> float:
    """Return the standard deviation (n - 1) of a group's undiscounted returns; 0 below two.

    With several players it is the largest of theirs. Its mean over the groups of a step is the
    figure `group_std` that monitors read.
    """
    if len(group) < 2:
        return 0.0
    players = dict.fromkeys(player for t in group for player in t.totals)
    if not players:
        return stdev(t.total for t in group)
    return max(stdev(t.totals.get(player, 0.0) for t in group) for player in players)


def _scored(trajectory: Trajectory, metric: str) -> dict[str, float]:
    """Return the metric of a rollout, or that of each of its players."""
    if not trajectory.outcomes:
        return {"": trajectory.total if metric == "total" else float(trajectory.success)}
    totals = trajectory.totals.items()
    return {player: total if metric == "total" else float(total > 0) for player, total in totals}


def negligible(advantages: Tensor, eps: float = 0.01) -> bool:
    """Return whether a rollout teaches almost nothing: every |advantage| [T] is below `eps`.

    Source: LOOP (Chen et al. 2025), ml-loop release, which drops such rollouts before the
    update. Dropping changes the denominator of the loss: weights must be computed after it.
    """
    return not bool((advantages.abs() >= eps).any())
