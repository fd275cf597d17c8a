"""Curves: drawn for any run, however short, and without touching the caller's matplotlib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.evaluation.reports.learning_curves import (
    ModelledReward,
    learning_curve_png,
    learning_curve_text,
    series,
    smooth,
)
from palaestra.evaluation.statistics.intervals import wilson
from tests.evaluation.made import curve

HELD_OUT = {"base": wilson(10, 256), "imitation": wilson(92, 256), "rl": wilson(187, 256)}


@pytest.mark.parametrize("steps", [0, 1, 2, 60])
def test_a_png_is_drawn_for_a_run_of_any_length(steps: int, tmp_path: Path) -> None:
    path = tmp_path / "curve.png"
    learning_curve_png(curve(steps), path, held_out=HELD_OUT if steps != 2 else {}, title="a run")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]


def test_numbers_that_are_missing_or_not_finite_are_left_out() -> None:
    metrics = [(1, {"success": 0.5}), (2, {"success": float("nan")}), (3, {"reward": 1.0})]
    steps, values = series(metrics, "success")
    assert (steps.tolist(), values.tolist()) == ([1.0], [0.5])


def test_of_a_step_recorded_twice_the_later_record_counts() -> None:
    steps, values = series([(1, {"x": 1.0}), (2, {"x": 2.0}), (1, {"x": 3.0})], "x")
    assert (steps.tolist(), values.tolist()) == ([1.0, 2.0], [3.0, 2.0])


@given(st.lists(st.floats(0, 1), max_size=80))
def test_smoothing_stays_within_the_values(values: list[float]) -> None:
    smoothed = smooth(np.array(values))
    assert len(smoothed) == len(values)
    if values:
        assert smoothed.min() >= min(values) - 1e-9
        assert smoothed.max() <= max(values) + 1e-9


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits_its_width_and_names_every_line(width: int) -> None:
    text = learning_curve_text(curve(60), width, held_out=HELD_OUT)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines[:-1])
    assert max(len(line) for line in lines[:-1]) > 0.8 * min(width, 110)
    for name in ("base 4 %", "imitation 36 %", "rl 73 %", "training rollouts"):
        assert name in lines[-1]
    assert "\x1b" not in text


@pytest.mark.slow
def test_a_reward_models_score_is_drawn_beside_the_true_success(tmp_path: Path) -> None:
    metrics = [
        (step, {"success": 0.5, "modelled_reward": score})
        for step, score in enumerate([-2.0, 1.0, 4.0], 1)
    ]
    modelled = ModelledReward.of(metrics)
    assert modelled is not None
    assert (modelled.steps.tolist(), modelled.values.tolist()) == ([1, 2, 3], [0.0, 0.5, 1.0])
    assert "x modelled reward, -2.00 to 4.00" in learning_curve_text(metrics, 80)
    plain = [(step, {"success": row["success"]}) for step, row in metrics]
    for name, rows in (("both", metrics), ("plain", plain)):
        learning_curve_png(rows, tmp_path / name, held_out={})
    assert (tmp_path / "both").read_bytes() != (tmp_path / "plain").read_bytes()
    assert ModelledReward.of(plain) is None


def test_a_score_that_never_changes_has_no_range() -> None:
    modelled = ModelledReward.of([(1, {"modelled_reward": 3.0}), (2, {"modelled_reward": 3.0})])
    assert modelled is not None and modelled.values.tolist() == [0.5, 0.5]


def test_a_run_without_rl_has_no_text_curve() -> None:
    assert learning_curve_text([], 80, held_out=HELD_OUT) == ""


def test_a_single_step_has_a_text_curve() -> None:
    assert "RL step" in learning_curve_text(curve(1), 80)


def test_neither_plotting_package_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, palaestra.evaluation.reports.report_files\n"
        "assert not {'matplotlib', 'plotext', 'torch', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
