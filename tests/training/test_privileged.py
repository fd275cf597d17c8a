"""Runs with a loss on privileged state: learned from, never shown, and left out of the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from palaestra.core.errors import CapabilityMissing, RecipeError
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from tests.training.learning import train, weights

LOSS = "rl.privileged.coefficient"


@pytest.mark.slow
def test_a_weight_of_0_is_bit_equal_to_no_head_and_another_learns(
    start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path / "none") as run:
        without = weights(run.path / "final")
    with train(start, tmp_path / "zero", f"{LOSS}=0") as run:
        assert weights(run.path / "final") == without
        assert "privileged_loss" not in run.database.metrics("rl")[0][1]
    with train(start, tmp_path / "one", f"{LOSS}=1", "rl.privileged.learning_rate=0.05") as run:
        assert weights(run.path / "final") != without
        losses = [values["privileged_loss"] for _, values in run.database.metrics("rl")]
        assert losses[-1] < losses[0]
        saved = load_file(run.path / "final" / "model.safetensors")
        assert saved.keys() == load_file(start / "model.safetensors").keys()


def test_numbers_of_the_state_are_recorded_and_in_no_prompt(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, f"{LOSS}=1") as run:
        (episode, *_) = run.database.episodes("rl/1")
    known = [step.before.privileged for step in episode.steps]
    assert all(len(numbers) == 9 for numbers in known)
    prompts = [message.text for call in episode.calls for message in call.messages]
    assert not any(str(numbers[7]) in text for numbers in known for text in prompts)


def test_an_environment_without_such_numbers_is_refused() -> None:
    keys = [
        "environment.id=gymnasium/CartPole-v1",
        "environment.transfer=",
        "imitation.demonstrations=0",
    ]
    with pytest.raises(CapabilityMissing, match=r"rl\.privileged .*'gymnasium/CartPole-v1'"):
        check_recipe(load("quick", [*keys, f"{LOSS}=1"]))


def test_several_learners_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"rl\.privileged is impossible with cluster\.learners"):
        load("quick", [f"{LOSS}=1", "cluster.learners=2"])
