"""The sceptic's arm: learning from something else than the reward, all else being equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from safetensors.torch import load_file

from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.evaluation.reports.report_files import headline
from palaestra.learning.credit.returns import rloo
from palaestra.learning.data.control_reward import Arm, ControlReward
from palaestra.learning.data.trajectory import Trajectory
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import write_report
from palaestra.training.trace import read_trace
from tests.learning.credit.made import trajectories
from tests.training.learning import train, weights

FILE = "model.safetensors"


@given(trajectories())
def test_only_rewards_differ_and_returns_agree(batch: list[Trajectory]) -> None:
    for arm in Arm:
        control = ControlReward(arm, seed=3)
        for true in batch:
            found = control.trajectory(true)
            assert found.total == pytest.approx(control.episode_return(true.key, true.total))
            kept = replace(
                found,
                outcome=true.outcome,
                outcomes=true.outcomes,
                success=true.success,
                turns=tuple(
                    replace(turn, reward=was.reward, progress=was.progress)
                    for turn, was in zip(found.turns, true.turns, strict=True)
                ),
            )
            assert kept == true
            assert all(turn.progress is None for turn in found.turns)


@given(trajectories())
def test_credit_is_opposite_when_inverted_and_nothing_when_constant(
    batch: list[Trajectory],
) -> None:
    true = rloo(batch).advantages
    inverted = rloo([ControlReward(Arm.INVERTED, 1).trajectory(t) for t in batch]).advantages
    constant = rloo([ControlReward(Arm.CONSTANT, 1).trajectory(t) for t in batch]).advantages
    for a, b, c in zip(true, inverted, constant, strict=True):
        assert torch.allclose(a, -b, atol=1e-6)
        assert torch.allclose(c, torch.zeros_like(c), atol=1e-6)


def test_the_coin_is_fair_and_its_own_in_each_run() -> None:
    keys = [Key(f"rl/{step}", group, member) for step in range(20) for group in range(20)
            for member in range(5)]  # fmt: skip
    flips = {
        seed: [ControlReward(Arm.COIN, seed).episode_return(key, 0.5) for key in keys]
        for seed in (1, 2)
    }
    for seed, found in flips.items():
        assert set(found) == {0.0, 1.0}
        assert abs(sum(found) / len(found) - 0.5) < 0.045  # 4 standard errors of 2000 coins
        assert found == [ControlReward(Arm.COIN, seed).episode_return(key, 0.9) for key in keys]
    agree = sum(a == b for a, b in zip(*flips.values(), strict=True)) / len(keys)
    assert abs(agree - 0.5) < 0.045


def test_a_run_without_information_moves_nothing_and_reports_it(
    start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, 'rl.control="constant"') as run:
        before, after = (load_file(of / FILE) for of in (start, run.path / "final"))
        assert all(torch.equal(before[k].to(after[k].dtype), after[k]) for k in before)
        report = write_report(run)
        assert headline(report).startswith("Control run: RL learned from a constant")
        assert "training seed" in headline(report)
        trace = read_trace(run.database, "rl/1")  # what `compare` sees is what was learned from
        assert {t.total for t in trace.batch} == {1.0}


@pytest.mark.slow
def test_a_coin_moves_the_weights(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, 'rl.control="coin"') as run:
        assert weights(run.path / "final") != weights(start)
        assert {t.total for t in read_trace(run.database, "rl/1").batch} == {0.0, 1.0}


@pytest.mark.parametrize(
    "keys",
    [
        ["rl.rewards.progress=0.5"],
        ["rl.curriculum.tasks=4"],
        ["rl.entropulse.rl_steps=1", "rl.entropulse.sft_steps=1"],
    ],
)
def test_what_reads_the_true_success_is_refused(keys: list[str]) -> None:
    with pytest.raises(InputError, match=r"rl\.control"):
        check_recipe(load("quick", ['rl.control="coin"', *keys]))


def test_the_command_line_names_the_arm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "quick", "--control", "inverted", "--dry-run"]) == 0
    assert 'control = "inverted"' in capsys.readouterr().out
