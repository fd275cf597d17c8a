"""Feedback to a generator of tasks: weak skills are asked for, mastered ones are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import RecipeError
from palaestra.learning.curricula.feedback import Mix, Tally, requested, tallies, weak_skills
from palaestra.learning.methods.component import Kind, Status, find

tally = st.builds(
    lambda successes, failures: Tally(successes, successes + failures),
    st.integers(0, 30),
    st.integers(0, 30),
)
skills = st.dictionaries(st.text(max_size=3), tally, max_size=6)


def test_outcomes_are_counted_by_skill():
    labelled = [("open", True), ("pick up", False), ("open", False), ("open", True)]
    assert tallies(labelled) == {"open": Tally(2, 3), "pick up": Tally(0, 1)}


def test_a_skill_that_was_never_tried_counts_as_failed():
    assert Tally().failure_rate == 1.0
    assert Tally(3, 4).failure_rate == 0.25


def test_weak_skills_are_asked_for_in_proportion_to_their_failures():
    mix = weak_skills({"wood": Tally(9, 10), "stone": Tally(5, 10), "iron": Tally(0, 10)})
    assert mix.original == 0.5
    assert mix.skills == pytest.approx({"wood": 0, "stone": 0.5 / 3, "iron": 1 / 3})


def test_only_original_tasks_remain_when_all_is_mastered():
    mix = weak_skills({"wood": Tally(10, 10), "stone": Tally(19, 20)})
    assert mix == Mix(1.0, {"wood": 0.0, "stone": 0.0})
    assert weak_skills({}) == Mix(1.0, {})


@given(skills, st.floats(0, 1), st.floats(0, 1))
def test_shares_are_probabilities(skills, original, mastered):
    mix = weak_skills(skills, original=original, mastered=mastered)
    assert mix.skills.keys() == skills.keys()
    assert min([mix.original, *mix.skills.values()]) >= 0
    assert mix.original + sum(mix.skills.values()) == pytest.approx(1)


@given(skills, st.floats(0, 1))
def test_a_weaker_skill_never_gets_less(skills, original):
    mix = weak_skills(skills, original=original)
    ranked = sorted(skills, key=lambda name: skills[name].failure_rate)
    shares = [mix.skills[name] for name in ranked]
    assert shares == sorted(shares)


@given(skills, st.floats(0, 1), st.integers(0, 50), st.data())
def test_whole_numbers_of_tasks_stay_within_one_of_the_shares(skills, original, count, data):
    mix = weak_skills(skills, original=original)
    numbers = requested(mix, count)
    ordinary = count - sum(numbers.values())
    assert abs(ordinary - count * mix.original) < 1 + 1e-6
    for name, number in numbers.items():
        assert abs(number - count * mix.skills[name]) < 1 + 1e-6
    order = data.draw(st.permutations(list(mix.skills)))
    assert requested(Mix(mix.original, {n: mix.skills[n] for n in order}), count) == numbers


def test_tasks_are_apportioned_by_largest_remainders():
    mix = Mix(0.5, {"stone": 0.2, "iron": 0.3})
    assert requested(mix, 10) == {"stone": 2, "iron": 3}
    assert requested(mix, 4) == {"stone": 1, "iron": 1}  # 2, 0.8 and 1.2
    assert requested(mix, 1) == {"stone": 0, "iron": 0}


@pytest.mark.parametrize("original", [-0.1, 1.1])
def test_a_share_outside_its_range_is_an_error(original):
    with pytest.raises(RecipeError, match="original"):
        weak_skills({}, original=original)


def test_the_hook_is_registered_as_what_it_is():
    part = find(Kind.CURRICULUM, "palaestra.learning.curricula.feedback:weak_skills")
    assert (part.name, part.status) == ("envgen", Status.EXPERIMENTAL)
