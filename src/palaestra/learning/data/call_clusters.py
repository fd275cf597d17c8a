"""Clusters of recorded calls, by k-means.

Source: Lloyd 1982, begun as k-means++ (Arthur and Vassilvitskii 2007); for calls of agents Belcak
et al. 2025, see `models.call_router`. Equal calls are one point with a weight, and points are in
a fixed order, so that the order of the calls has no influence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.models.call_router import CallRouter, Vector, distances, features

ROUNDS = 100  # at most; mostly fewer than 20 change anything


def features_of(call: Call) -> Vector:
    """Return the features of a recorded call, those with which the live one is routed."""
    return features(call.role, call.tools, last_message(call))


def last_message(call: Call) -> str:
    """Return the text of the last message of a call's prompt."""
    return call.messages[-1].text if call.messages else ""


def fit_router(calls: Sequence[Call], clusters: int, fallback: float, seed: int) -> CallRouter:
    """Cluster calls, and set from which distance on a call fits no cluster.

    Args:
        calls: to be clustered.
        clusters: how many.
        fallback: share of `calls` that are too far from every centre, in [0, 1).
        seed: of the first centres.

    Raises:
        InputError: there are fewer different calls than clusters.
    """
    counts: dict[tuple[float, ...], int] = {}
    for call in calls:
        point = tuple(features_of(call).tolist())
        counts[point] = counts.get(point, 0) + 1
    if len(counts) < clusters:
        raise InputError(
            f"adapters.clusters = {clusters}, and the {len(calls)} calls are of {len(counts)} "
            "kinds only; set fewer clusters, or record more episodes."
        )
    order = sorted(counts)
    points, weights = np.array(order), np.array([counts[point] for point in order], float)
    centres = k_means(points, weights, clusters, seed)
    nearest = np.array([distances(point, centres).min() for point in points])
    return CallRouter(centres, quantile(nearest, weights, 1 - fallback))


def k_means(points: Vector, weights: Vector, clusters: int, seed: int) -> Vector:
    """Return the centres [clusters, D] of weighted points.

    Args:
        points: [N, D], all different, at least as many as clusters.
        weights: [N], positive.
        clusters: how many.
        seed: of the first centres.
    """
    centres = _first(points, weights, clusters, np.random.default_rng(seed))
    members = np.full(len(points), -1)
    for _ in range(ROUNDS):
        found = np.array([int(distances(point, centres).argmin()) for point in points])
        if (found == members).all():
            break
        members = found
        for number in range(clusters):
            own = members == number
            if own.any():  # else it stays where it is
                total = (points[own] * weights[own, None]).sum(axis=0)
                centres[number] = total / weights[own].sum()
    return centres


def _first(points: Vector, weights: Vector, clusters: int, rng: np.random.Generator) -> Vector:
    """Return different points, each drawn by weight and squared distance from those before it."""
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    while len(chosen) < clusters:
        gaps = np.array([distances(point, points[chosen]).min() for point in points])
        chances = weights * np.square(gaps)
        chosen.append(int(rng.choice(len(points), p=chances / chances.sum())))
    return points[chosen].copy()


def quantile(values: Vector, weights: Vector, share: float) -> float:
    """Return the least of some values at or below which a share of their weight lies."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    place = min(int(np.searchsorted(reached, share - 1e-12)), len(values) - 1)
    return float(values[order][place])
