"""`palaestra aggregate`: training seeds of one method as one figure, and two methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.evaluation.statistics.aggregates import (
    interquartile_mean,
    probability_of_improvement,
)
from palaestra.evaluation.statistics.intervals import task_scores
from palaestra.store.run_folder import RunFolder
from tests.evaluation.made import evaluation

WORLDS = ("babyai/GoToLocal", "babyai/Open")
RATES = {"a": (0.7, 0.8, 0.75), "b": (0.3, 0.5, 0.4)}


def make(root: Path, name: str, rate: float, seed: int, worlds: tuple[str, ...]) -> list[float]:
    """A run of one training seed; its success in each world."""
    found = []
    with RunFolder.create(root / name, {}) as run:
        for world in worlds:
            phase = f"eval/test/direct/m/{world}/seed-0"
            finished = evaluation(phase, rate, 40, environment=world, seed=seed)
            scores = task_scores(finished)
            found.append(sum(scores.values()) / len(scores))
            for episode in finished:
                run.database.finish(episode)
    return found


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[float]]]:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path))
    return {
        side: [
            make(tmp_path, f"{side}{seed}", rate, 10 * seed + (side == "b"), WORLDS)
            for seed, rate in enumerate(rates)
        ]
        for side, rates in RATES.items()
    }


def test_the_figures_are_those_of_the_table_of_runs_and_worlds(
    tables: dict[str, list[list[float]]], capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    runs = [f"a{i}" for i in range(3)], [f"b{i}" for i in range(3)]
    assert main(["aggregate", *runs[0], "--against", *runs[1], "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["environments"] == sorted(WORLDS) and result["left_out"] == []
    for side, table in tables.items():
        middle = result[side]["figures"]["interquartile mean"]
        assert middle["mean"] == pytest.approx(float(interquartile_mean(np.array(table))))
        assert middle["low"] <= middle["mean"] <= middle["high"]
        above = result[side]["profile"][5]
        assert above["mean"] == pytest.approx((np.array(table) > 0.5).mean())
    better = probability_of_improvement(tables["a"], tables["b"])
    assert result["probability_of_improvement"]["mean"] == pytest.approx(better.mean)


def test_a_world_that_not_all_have_is_named_and_left_out(
    tables: dict[str, list[list[float]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "less", 0.6, 7, WORLDS[:1])
    assert main(["aggregate", "a0", "less"]) == 0
    shown = capsys.readouterr().out
    assert f"Left out, because not all runs have it: {WORLDS[1]}." in shown
    assert "interquartile mean" in shown and "bootstrap intervals are too narrow" in shown


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("a0",), "One run does not show the variance"),
        (("a0", "nowhere"), "There is no run"),
        (("a0", "a1", "--against", "b0"), "One run does not show"),
        (("a0", "other"), "share no task"),
    ],
)
def test_what_cannot_work_exits_2_with_a_sentence(
    tables: dict[str, list[list[float]]],
    tmp_path: Path,
    arguments: tuple[str, ...],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path, "other", 0.5, 3, ("babyai/Pickup",))
    assert main(["aggregate", *arguments]) == 2
    assert why in capsys.readouterr().err
