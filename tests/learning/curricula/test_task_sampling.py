"""Task sampling: weights are probabilities, and each rule has its taste."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError, RecipeError
from palaestra.learning.curricula.task_sampling import (
    TaskHistory,
    dart,
    learnability,
    learning_progress,
    sample_tasks,
    solved_before,
    uniform,
    waker,
    waker_reduction,
)
from palaestra.learning.methods.component import Kind, Status, find

RULES = {
    "uniform": uniform,
    "learnability": learnability,
    "dart": dart,
    "arpo": solved_before,
    "alp": learning_progress,
    "waker": waker,
    "waker-reduction": waker_reduction,
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
histories = st.lists(
    st.builds(
        TaskHistory,
        st.lists(st.sampled_from([0.0, 0.3, 1.0]), max_size=12).map(tuple),
        st.lists(st.floats(0, 1e3), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def results(*sequences):
    return [TaskHistory(tuple(map(float, s))) for s in sequences]


def errors(*sequences):
    return [TaskHistory(errors=tuple(map(float, s))) for s in sequences]


@rules
@given(tasks=histories)
def test_weights_are_probabilities(rule, tasks):
    weights = rule(tasks)
    assert len(weights) == len(tasks)
    assert min(weights) >= 0
    assert sum(weights) == pytest.approx(1)


@rules
@given(tasks=histories, data=st.data())
def test_permuting_the_tasks_permutes_the_weights(rule, tasks, data):
    order = data.draw(st.permutations(range(len(tasks))))
    weights = rule(tasks)
    assert rule([tasks[i] for i in order]) == pytest.approx([weights[i] for i in order])


@rules
@given(history=st.builds(TaskHistory, st.just((1.0, 0.0, 1.0)), st.just((2.0, 1.0))))
def test_tasks_of_which_the_same_is_known_are_alike(rule, history):
    assert rule([history] * 4) == pytest.approx([0.25] * 4)


@rules
def test_untried_tasks_are_alike(rule):
    assert rule([TaskHistory()] * 5) == pytest.approx([0.2] * 5)


@rules
def test_there_must_be_a_task(rule):
    with pytest.raises(InputError, match="at least one"):
        rule([])


def test_learnability_prefers_what_succeeds_half_the_time():
    tasks = results([0] * 32, [1, 0] * 16, [1] * 32, [])
    never, half, always, untried = learnability(tasks)
    assert half == untried > never == pytest.approx(always)
    # with the prior p is 1/34, 1/2 and 33/34
    score = {"edge": 33 / 34**2, "half": 0.25}
    total = 2 * score["edge"] + 2 * score["half"]
    assert half == pytest.approx(0.1 / 4 + 0.9 * score["half"] / total)
    assert never == pytest.approx(0.1 / 4 + 0.9 * score["edge"] / total)


def test_learnability_gives_the_numbers_of_syllabus():
    # its sampling "dist" of the success rates 1/4, 1/2, 3/4 and 1; without a prior, or nearly so
    tasks = results([0, 0, 0, 1], [0, 1, 0, 1], [0, 1, 1, 1], [1] * 4)
    weights = learnability(tasks, prior=1e-9, share=0.0)
    assert weights == pytest.approx([0.3, 0.4, 0.3, 0.0], abs=1e-6)


def test_learnability_looks_at_recent_results():
    tasks = results([0] * 100 + [1, 0] * 4, [1, 0] * 4)
    assert learnability(tasks, window=8) == pytest.approx([0.5, 0.5])
    old, new = learnability(tasks, window=200)
    assert old < new


def test_dart_tries_solved_tasks_less():
    tasks = results([], [0] * 10, [1] * 6 + [0] * 4, [1] * 8 + [0] * 2, [1] * 10)
    weights = dart(tasks)
    assert weights == pytest.approx([w / 3.875 for w in [1, 1, 1, 0.625, 0.25]])


def test_arpo_tries_what_was_solved_before():
    assert solved_before(results([0, 0, 1], [0, 0, 0], [], [1])) == [0.5, 0, 0, 0.5]


def test_learning_progress_is_the_change_between_two_halves():
    rising, falling, flat, half = [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 1]
    weights = learning_progress(results(rising, falling, flat, half), share=0.0)
    assert weights == pytest.approx([1 / 2.5, 1 / 2.5, 0, 0.5 / 2.5])


def test_learning_progress_gives_the_older_half_the_odd_result():
    weights = learning_progress(results([0, 1, 1], [0, 0, 1, 1]), share=0.0)
    assert weights == pytest.approx([0.5 / 1.5, 1 / 1.5])
    assert learning_progress(results([0, 1], [0, 0, 1]), share=0.0) == [0, 1]


def test_learning_progress_keeps_a_uniform_share():
    assert learning_progress(results([0, 0, 1, 1], [0] * 4)) == pytest.approx([0.9, 0.1])


def test_learning_progress_forgets_beyond_its_window():
    learnt_long_ago = [0] * 10 + [1] * 10
    weights = learning_progress(results(learnt_long_ago, [0, 0, 1, 1]), window=8, share=0.0)
    assert weights == [0, 1]


def test_learning_progress_gives_the_numbers_of_riac():
    # compute_alp of TeachMyAgent with a window of 6: 1/3, 1/3, 0 and (too few) 0
    shown = results([0, 1, 1, 0, 1, 1, 1], [1, 1, 0, 0, 0, 1], [0, 0, 0, *[1] * 6], [1, 1])
    assert learning_progress(shown, window=6, share=0.0) == pytest.approx([0.5, 0.5, 0, 0])


def test_waker_gives_the_numbers_of_its_release():
    # its sampling_distribution of the errors 1, 2 and 4 ("mean_std"), a fifth of it uniform
    weights = waker(errors([1], [2], [4]))
    assert weights == pytest.approx([0.122565, 0.191292, 0.686144], abs=1e-6)


def test_waker_reduction_gives_the_numbers_of_its_release():
    # changes of 0.145, 0.05 and -0.1475 ("mean", temperature 0.5), a fifth of it uniform
    weights = waker_reduction(errors([5, 3, 2], [4, 4, 3], [1, 2, 4]))
    assert weights == pytest.approx([0.735962, 0.193388, 0.070650], abs=1e-6)


def test_waker_is_a_softmax_over_standardised_errors():
    # 1, 2, 3 in standard deviations over n: -1.2247, 0, 1.2247
    weights = waker(errors([9, 1], [2], [3]), share=0.0)
    assert weights == pytest.approx([0.0626, 0.2129, 0.7245], abs=1e-4)


def test_waker_gives_variants_without_an_estimate_the_uniform_share():
    weights = waker(errors([1], [1], [], []))
    assert weights == pytest.approx([0.45, 0.45, 0.05, 0.05])


def test_waker_reduction_prefers_errors_that_fall():
    # reductions 1 and -1, divided by their mean absolute value; softmax at temperature 0.5
    falling, rising = waker_reduction(errors([3, 2], [2, 3]), share=0.0)
    assert falling == pytest.approx(0.9820, abs=5e-5)
    assert falling + rising == pytest.approx(1)


def test_waker_reduction_smooths_over_estimates():
    # c = 0.95 * 0.05 + 0.05 = 0.0975 for two falls of one, 0.05 for one
    twice, once = waker_reduction(errors([3, 2, 1], [2, 1]), share=0.0, temperature=1.0)
    assert twice / once == pytest.approx(2.71828 ** ((0.0975 - 0.05) / 0.07375), abs=1e-4)


def test_waker_reduction_needs_two_estimates():
    assert waker_reduction(errors([5], [2, 1])) == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize(
    ("rule", "options", "words"),
    [
        (learnability, {"prior": 0.0}, "prior"),
        (learnability, {"window": 0}, "window"),
        (learnability, {"share": 1.1}, "share"),
        (learning_progress, {"share": -0.1}, "share"),
        (dart, {"floor": -0.5}, "floor"),
        (waker, {"temperature": 0.0}, "temperature"),
    ],
)
def test_options_out_of_range_are_errors(rule, options, words):
    with pytest.raises(RecipeError, match=words):
        rule([TaskHistory((1.0,), (2.0, 1.0))] * 2, **options)


def test_draws_follow_the_weights():
    counts = Counter(sample_tasks([0.1, 0.0, 0.9], 10_000, seed=3))
    assert counts.keys() == {0, 2}
    assert abs(counts[0] - 1000) < 150  # sd 30


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 1.0]), min_size=1, max_size=6),
    st.integers(0, 20),
    st.integers(0, 99),
)
def test_the_same_seed_draws_the_same_tasks(weights, count, seed):
    if not any(weights):
        return
    sampled = sample_tasks(weights, count, seed=seed)
    assert sampled == sample_tasks(list(weights), count, seed=seed)
    assert len(sampled) == count
    assert all(weights[i] > 0 for i in sampled)


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -0.1], [float("nan"), 1.0]])
def test_weights_that_are_none_cannot_be_sampled_from(weights):
    with pytest.raises(InputError, match="weights"):
        sample_tasks(weights, 1, seed=0)


@pytest.mark.parametrize(("name", "rule"), RULES.items())
def test_rules_are_registered_under_their_names(name, rule):
    part = find(Kind.CURRICULUM, f"palaestra.learning.curricula.task_sampling:{rule.__name__}")
    assert part.name == name
    assert part.status is STATUS.get(name, Status.EXPERIMENTAL)


STATUS = {
    "uniform": Status.OURS,
    "alp": Status.RELEASE,
    "learnability": Status.RELEASE,
    "waker": Status.RELEASE,
    "waker-reduction": Status.RELEASE,
}
