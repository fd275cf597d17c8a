"""Several environments in one run: cosines of their gradients, and steps without conflict."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.cli.resources import estimate
from palaestra.core.errors import RecipeError
from palaestra.training.recipe import load
from tests.training.learning import train, weights

ENVIRONMENTS = ("babyai/GoToObjS4", "babyai/GoToObjS6")
LEVELS = [
    f"rl.curriculum.levels={list(ENVIRONMENTS)}",
    "rl.curriculum.rule=uniform",
    "rl.tasks=6",
    "rl.minibatches=1",
]


@pytest.mark.slow
def test_measured_cosines_change_no_choice_and_projection_does(start: Path, tmp_path: Path) -> None:
    pair = " and ".join(ENVIRONMENTS)
    with train(start, tmp_path / "measured", *LEVELS, "rl.conflict=measure") as run:
        measured = [values for _, values in run.database.metrics("rl")]
        assert all(-1 <= values[f"gradient_cosine/{pair}"] <= 1 for values in measured)
        shares = [measured[0][f"success/{name}"] for name in ENVIRONMENTS]
        assert min(shares) <= measured[0]["success"] <= max(shares)
    with train(start, tmp_path / "plain", *LEVELS) as run:
        plain = [values for _, values in run.database.metrics("rl")]
    assert plain[0]["gradient_norm"] == pytest.approx(
        measured[0]["gradient_norm"], rel=1e-2
    )  # bf16: other micro-batches
    assert not any(name.startswith("gradient_cosine") for name in plain[0])


@pytest.mark.slow
def test_a_run_that_projects_can_be_repeated_bit_for_bit(start: Path, tmp_path: Path) -> None:
    found = []
    for name in ("one", "other"):
        with train(start, tmp_path / name, *LEVELS, "rl.conflict=project") as run:
            found.append(weights(run.path / "final"))
    assert found[0] == found[1] != weights(start)


@pytest.mark.parametrize("keys", [[], ["rl.curriculum.tasks=4"], LEVELS[1:2]])
def test_one_environment_has_no_conflict(keys: list[str]) -> None:
    with pytest.raises(RecipeError, match=r"rl\.conflict|rl\.curriculum needs levels"):
        load("quick", [*keys, "rl.conflict=project"])


def test_the_memory_of_gradients_kept_apart_is_told_before_the_run() -> None:
    plain, apart = (
        estimate(load("quick", [*LEVELS, *keys])).memory.gradients
        for keys in ([], ["rl.conflict=measure"])
    )
    assert apart == 4 * plain  # its own, two families, and their sum
