"""Clusters of calls: k-means by hand, and what does not change them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.message import user
from palaestra.learning.data.call_clusters import fit_router, k_means, quantile
from tests.learning.made import call


@pytest.mark.parametrize("seed", range(5))
def test_two_pairs_of_points_have_their_weighted_means_as_centres(seed: int) -> None:
    points = np.array([[0.0, 0.0], [0.0, 4.0], [100.0, 0.0], [100.0, 4.0]])
    centres = k_means(points, np.array([3.0, 1.0, 1.0, 1.0]), 2, seed)
    assert sorted(centres.tolist()) == [[0.0, 1.0], [100.0, 2.0]]


@given(
    st.sets(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=7),
    st.integers(0, 5),
)
def test_at_the_end_each_centre_is_the_mean_of_its_points(
    found: set[tuple[int, int]], seed: int
) -> None:
    points = np.array(sorted(found), float)
    centres = k_means(points, np.ones(len(points)), 3, seed)
    nearest = [int(np.square(centres - p).sum(axis=1).argmin()) for p in points]
    for number in set(nearest):
        own = points[[n == number for n in nearest]]
        np.testing.assert_allclose(own.mean(axis=0), centres[number], atol=1e-9)


def test_the_quantile_of_weighted_values() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 6.0, 3.0])
    assert [quantile(values, weights, s) for s in (0.6, 0.61, 0.9, 0.95, 1.0)] == [1, 2, 2, 3, 3]


def test_the_order_of_calls_has_no_influence() -> None:
    texts = ["pick up the key", "open the door", "go to the red ball", "go to the blue ball"]
    calls = [
        replace(call(n, None, [1], [2]), messages=(user(text),)) for n, text in enumerate(texts)
    ]
    routers = [
        fit_router(order, 2, 0.1, seed=3).document() for order in itertools.permutations(calls)
    ]
    assert all(router == routers[0] for router in routers)


def test_fewer_kinds_of_calls_than_clusters_are_refused() -> None:
    calls = [replace(call(n, None, [1], [2]), messages=(user("the same"),)) for n in range(5)]
    with pytest.raises(InputError, match="the 5 calls are of 1 kinds only; set fewer"):
        fit_router(calls, 2, 0.1, seed=0)
