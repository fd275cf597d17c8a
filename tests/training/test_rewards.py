"""Reward terms in runs: what a recipe may weight, and that a weight of 0 only logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from tests.training.learning import train, weights


@pytest.mark.slow
def test_a_term_of_weight_0_is_logged_and_leaves_the_weights_bit_equal(
    start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path / "without") as run:
        without = weights(run.path / "final")
        assert "reward/progress" not in run.database.metrics("rl")[0][1]
    with train(start, tmp_path / "logged", "rl.rewards.progress=0") as run:
        assert weights(run.path / "final") == without
        assert all("reward/progress" in values for _, values in run.database.metrics("rl"))
    with train(start, tmp_path / "weighted", "rl.rewards.progress=0.5") as run:
        assert weights(run.path / "final") != without


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.rewards.progres=1"], "progress"),
        (["rl.reward_options.length.per=2"], r"reward_options\.length has no effect without"),
        (["rl.rewards.overlong=1", "rl.reward_options.overlong.buffer=0"], "buffer"),
        (["rl.rewards.length=nan"], "finite"),
    ],
)
def test_a_term_that_cannot_be_measured_is_refused(keys: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_recipe(load("quick", keys))


def test_progress_needs_an_environment_that_declares_it() -> None:
    keys = [
        "environment.id=gymnasium/CartPole-v1",
        "environment.transfer=",
        "imitation.demonstrations=0",
    ]
    with pytest.raises(CapabilityMissing, match=r"rl\.rewards\.progress needs .*leave it out"):
        check_recipe(load("quick", [*keys, "rl.rewards.progress=0"]))
