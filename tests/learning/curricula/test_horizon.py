"""Horizons: the published stages, before and after a resume."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import RecipeError
from palaestra.learning.curricula.horizon import scaling_inter
from palaestra.learning.methods.component import Kind, Status, find


@pytest.mark.parametrize(
    ("step", "turns"), [(1, 5), (100, 5), (101, 8), (200, 8), (201, 10), (1000, 10)]
)
def test_the_live_counter_gives_the_published_numbers(step, turns):
    assert scaling_inter(step, horizons=[5, 8, 10], every=100) == turns


@pytest.mark.parametrize(("done", "turns"), [(100, 8), (200, 10)])
def test_the_released_resume_path_means_the_step_that_comes_next(done, turns):
    released = [5, 8, 10][min(done // 100, 2)]
    assert released == turns == scaling_inter(done + 1)
    assert scaling_inter(done) != turns  # off by one if it is asked for the step just made


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 30), st.data())
def test_a_run_resumed_at_any_step_has_the_same_horizons(horizons, every, data):
    per_step = [scaling_inter(s, horizons=horizons, every=every) for s in range(1, 101)]
    done = data.draw(st.integers(0, 99))
    resumed = [scaling_inter(s, horizons=horizons, every=every) for s in range(done + 1, 101)]
    assert per_step[:done] + resumed == per_step
    in_stages = [h for h in horizons for _ in range(every)] + [horizons[-1]] * 100
    assert per_step == in_stages[:100]


@pytest.mark.parametrize(
    ("step", "options"), [(0, {}), (1, {"every": 0}), (1, {"horizons": []}), (1, {"horizons": [0]})]
)
def test_numbers_below_one_are_errors(step, options):
    with pytest.raises(RecipeError, match="1 or more"):
        scaling_inter(step, **options)


def test_the_horizon_is_registered_with_its_source():
    part = find(Kind.CURRICULUM, "palaestra.learning.curricula.horizon:scaling_inter")
    assert (part.name, part.status) == ("scaling-inter", Status.RELEASE)
    assert part.options == {"horizons": (5, 8, 10), "every": 100}
