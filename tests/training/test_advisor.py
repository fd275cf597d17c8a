"""Runs with an advisor: it acts in rollouts and never in tests, and is learned from by weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.episode import ADVISOR
from palaestra.core.errors import InputError
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from tests.training.learning import train, weights

RLIF = ["rl.advisor.after=1", "rl.advisor.turns=2", "rl.rewards.intervention=-1"]
VARL = ["rl.advisor.probability=0.5"]


def advice(run: RunFolder, phase: str) -> set[str]:
    episodes = run.database.episodes(phase)
    return {call.role for e in episodes for call in e.calls if call.policy == "expert"}


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(VARL, id="turns"),
        pytest.param(
            [*VARL, "rl.advisor.weight=rollout", "rl.advisor.error=0.3"],
            id="rollouts",
            marks=pytest.mark.slow,
        ),
        pytest.param(RLIF, id="interventions", marks=pytest.mark.slow),
    ],
)
def test_an_advisor_acts_in_rollouts_alone_and_moves_the_weights(
    keys: list[str], start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, *keys) as run:
        assert advice(run, "rl/1") == {ADVISOR}
        assert not advice(run, "test/rl")
        first = run.database.metrics("rl")[0][1]
        assert 0 < first["advised"] < 1
        assert first["advice_weight"] > 0
        assert weights(run.path / "final") != weights(start)


def test_an_annealed_advisor_is_asked_no_more(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *VARL, "rl.advisor.anneal=1") as run:
        assert advice(run, "rl/1") and not advice(run, "rl/2")


def test_interventions_alone_are_the_reward(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *RLIF, "rl.rewards.outcome=0", "rl.rewards.invalid=0") as run:
        for _, values in run.database.metrics("rl"):
            assert values["reward"] == pytest.approx(-values["reward/intervention"])
        assert run.database.metrics("rl")[0][1]["reward/intervention"] > 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.advisor.error=0.1"], "either probability or after"),
        ([*VARL, "rl.advisor.after=1"], "either probability or after"),
        ([*VARL, "rl.advisor.turns=2"], r"turns has no effect without rl\.advisor\.after"),
        (["rl.advisor.after=1", "rl.advisor.anneal=2"], "anneal has no effect without"),
        ([*VARL, "rl.staleness=1"], r"rl\.staleness learns from older rollouts"),
        ([*VARL, "agent.name=react"], "whose reply is the action"),
        ([*VARL, "environment.id=gymnasium/CartPole-v1"], "'gymnasium/CartPole-v1' has none"),
        (["rl.rewards.intervention=-1"], r"set rl\.advisor, or leave it out"),
    ],
)
def test_an_advisor_that_cannot_act_is_refused(keys: list[str], message: str) -> None:
    plain = ["environment.transfer=", "imitation.demonstrations=0"]
    with pytest.raises(InputError, match=message):
        check_recipe(load("quick", [*plain, *keys]))
