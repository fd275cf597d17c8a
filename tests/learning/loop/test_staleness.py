"""Staleness: how many rollouts may start, and how old they are when they are consumed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.learning.loop.staleness import staleness_capacity

counts = st.integers(0, 500)


def capacity(eta=4, version=10, batch=8, accepted=0, running=0, max_concurrent=1000):
    return staleness_capacity(eta, version, batch, accepted, running, max_concurrent)


def test_the_published_number():
    assert capacity() == 120
    assert capacity(accepted=100, running=15) == 5
    assert capacity(accepted=100, running=20) == 0


def test_no_more_run_at_once_than_allowed():
    assert capacity(accepted=40, running=12, max_concurrent=16) == 4
    assert capacity(accepted=40, running=16, max_concurrent=16) == 0


def test_without_staleness_each_version_gets_exactly_its_batch():
    assert capacity(eta=0, version=0) == 8
    assert capacity(eta=0, version=3, accepted=24) == 8


@given(eta=counts, version=counts, accepted=counts, running=counts)
def test_the_capacity_is_never_negative_and_never_exceeds_either_bound(
    eta, version, accepted, running
):
    found = capacity(eta, version, 8, accepted, running, max_concurrent=100)
    assert found >= 0
    assert found == 0 or running + found <= 100
    assert found == 0 or accepted + running + found <= (eta + version + 1) * 8


@given(
    eta=st.integers(0, 4),
    batch=st.integers(1, 4),
    concurrent=st.integers(1, 20),
    finishing=st.lists(st.integers(0, 6), min_size=1, max_size=60),
)
def test_rollouts_consumed_in_order_are_at_most_eta_versions_old(eta, batch, concurrent, finishing):
    started, accepted, version = [], 0, 0  # the version that each rollout was started at
    for count in finishing:
        running = len(started) - accepted
        started += [version] * staleness_capacity(
            eta, version, batch, accepted, running, concurrent
        )
        accepted = min(len(started), accepted + count)
        while accepted >= (version + 1) * batch:
            consumed = started[version * batch : (version + 1) * batch]
            assert all(version - at <= eta for at in consumed)
            version += 1


@pytest.mark.parametrize(
    "wrong",
    [{"eta": -1}, {"version": -1}, {"batch": 0}, {"running": -1}, {"max_concurrent": 0}],
)
def test_impossible_counts_are_errors(wrong):
    with pytest.raises(InputError, match="Staleness"):
        capacity(**wrong)
