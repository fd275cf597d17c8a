"""pass@k and pass^k: unbiased by enumeration, lawful in k, averaged over tasks."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.repeats import (
    Trials,
    over_tasks,
    pass_at_k,
    pass_hat_k,
    reliability,
    trials_of,
)
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode

trials = st.integers(1, 60).flatmap(lambda n: st.builds(Trials, st.just(n), st.integers(0, n)))


def test_both_are_shares_of_the_subsets_of_k_trials() -> None:
    results = [True, False, True, False, False, True]
    subsets = list(combinations(results, 3))
    counted = Trials(6, 3)
    assert pass_at_k(counted, 3) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    assert pass_hat_k(counted, 3) == pytest.approx(sum(map(all, subsets)) / len(subsets))


@given(trials, st.data())
def test_both_agree_with_scipys_hypergeometric_distribution(
    counted: Trials, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, counted.n))
    sampled = hypergeom(counted.n, counted.successes, k)
    assert pass_at_k(counted, k) == pytest.approx(sampled.sf(0), abs=1e-9)
    assert pass_hat_k(counted, k) == pytest.approx(sampled.pmf(k), abs=1e-9)


@given(trials)
def test_one_trial_is_the_success_rate_and_more_move_apart(counted: Trials) -> None:
    at = [pass_at_k(counted, k) for k in range(1, counted.n + 1)]
    hat = [pass_hat_k(counted, k) for k in range(1, counted.n + 1)]
    assert at[0] == pytest.approx(counted.successes / counted.n)
    assert hat[0] == pytest.approx(counted.successes / counted.n)
    assert all(x <= y + 1e-12 for x, y in pairwise(at))
    assert all(x >= y - 1e-12 for x, y in pairwise(hat))
    assert at[-1] == float(counted.successes > 0)
    assert hat[-1] == float(counted.successes == counted.n)


@given(trials, st.data())
def test_never_failing_is_the_mirror_image_of_ever_succeeding(
    counted: Trials, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, counted.n))
    failures = Trials(counted.n, counted.n - counted.successes)
    assert pass_hat_k(counted, k) == pytest.approx(1 - pass_at_k(failures, k))


@pytest.mark.parametrize(
    ("estimator", "truth"), [(pass_at_k, 1 - 0.7**3), (pass_hat_k, 0.3**3)], ids=["at", "hat"]
)
def test_the_mean_over_many_evaluations_is_the_truth(estimator, truth: float) -> None:
    successes = np.random.default_rng(0).binomial(5, 0.3, size=20_000)
    by_count = [estimator(Trials(5, c), 3) for c in range(6)]
    estimates = np.array(by_count)[successes]
    assert estimates.mean() == pytest.approx(truth, abs=4 * estimates.std() / np.sqrt(20_000))
    # Putting the observed rate into the formula instead is off by far more.
    plugged = 1 - (1 - successes / 5) ** 3 if estimator is pass_at_k else (successes / 5) ** 3
    assert abs(plugged.mean() - truth) > 0.02


def test_the_interval_over_tasks_covers_the_truth_about_as_often_as_it_claims() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(300):
        chances = rng.beta(1, 1, size=60)  # E p^2 = 1/3
        counted = [Trials(4, int(c)) for c in rng.binomial(4, chances)]
        interval = over_tasks(counted, 2, pass_hat_k, seed=seed, samples=1000)
        covered += interval.low <= 1 / 3 <= interval.high
    assert 0.91 <= covered / 300 <= 0.985


def test_trials_are_counted_by_task_without_those_that_broke() -> None:
    episodes = [
        episode("eval/test", 0, SUCCESS),
        episode("eval/test", 0, FAILURE, member=1),
        episode("eval/test", 0, CRASH, member=2),
        episode("eval/test", 3, SUCCESS),
    ]
    assert trials_of(episodes) == {0: Trials(2, 1), 3: Trials(1, 1)}


def test_tasks_with_too_few_trials_are_left_out_and_counted() -> None:
    counted = [Trials(4, 2), Trials(4, 4), Trials(1, 1)]
    assert over_tasks(counted, 2, pass_at_k).n == 2
    assert over_tasks(counted, 1, pass_at_k).n == 3


def test_each_k_with_two_tasks_is_reported() -> None:
    episodes = [
        episode("eval/test", task, SUCCESS if member <= task else FAILURE, member=member)
        for task in range(3)
        for member in range(3)
    ]
    found = reliability(episodes)
    assert list(found) == ["pass@1", "pass^1", "pass@2", "pass^2", "pass@3", "pass^3"]
    assert found["pass@1"].mean == found["pass^1"].mean == pytest.approx(2 / 3)
    assert found["pass@3"].mean == 1
    assert found["pass^3"].mean == pytest.approx(1 / 3)
    assert reliability(episodes[:3]) == {}


def test_what_cannot_be_known_is_refused() -> None:
    with pytest.raises(GroupTooSmall, match="at least 3"):
        pass_at_k(Trials(2, 1), 3)
    with pytest.raises(GroupTooSmall, match="1 of 2 tasks"):
        over_tasks([Trials(3, 1), Trials(2, 1)], 3, pass_at_k)
    with pytest.raises(InputError, match="k = 0"):
        pass_hat_k(Trials(2, 1), 0)
    with pytest.raises(InputError, match="k = 0"):
        over_tasks([Trials(2, 1)], 0, pass_at_k)
    with pytest.raises(InputError, match="are impossible"):
        Trials(2, 3)
