"""`palaestra diff`: what it says of two runs, and what it refuses to compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Episode, Key
from palaestra.evaluation.statistics.intervals import paired_difference, wilson
from palaestra.evaluation.statistics.multiple_testing import benjamini_hochberg, holm
from palaestra.evaluation.statistics.paired import mcnemar
from palaestra.store.run_folder import RunFolder
from tests.cli.conftest import Palaestra
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode, evaluation

Recipe = dict[str, Any]


def store(
    folder: Path, episodes: Sequence[Episode], recipe: Recipe | None = None, **documents: Any
) -> Path:
    with RunFolder.create(folder, recipe or {}) as run:
        for finished in episodes:
            run.database.finish(finished)
        for name, document in documents.items():
            run.database.put(name, document)
    return folder


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A weak and a strong policy on 120 tasks, the second with a few tasks more."""
    weak = evaluation("eval/test", 0.3, 120)
    strong = evaluation("eval/test", 0.6, 130)
    return (
        store(tmp_path / "weak", weak, {"model": "base", "agent": "direct", "summary": "x"}),
        store(tmp_path / "strong", strong, {"model": "rl", "agent": "direct", "summary": "y"}),
    )


@pytest.fixture
def diff(capsys: pytest.CaptureFixture[str]) -> Any:
    """`diff(a, b)` gives the JSON object that the command prints."""

    def run(*arguments: str | Path) -> Recipe:
        code = main(["diff", *map(str, arguments), "--json"])
        output = capsys.readouterr()
        assert code == 0, output.err
        result: Recipe = json.loads(output.out)
        return result

    return run


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["diff", *map(str, arguments)]) == 2
    result = capsys.readouterr().err
    assert result.startswith("palaestra: ")
    assert result.count("\n") == 1
    return result


# ── what is compared ─────────────────────────────────────────────────────────


def test_the_figures_are_those_of_the_stored_episodes(diff: Any, two: tuple[Path, Path]) -> None:
    result = diff(*two)
    weak = [e.outcome.solved for e in evaluation("eval/test", 0.3, 120)]
    with RunFolder.read(two[1]) as opened:
        strong = [e.outcome.solved for e in opened.database.episodes("eval/test")[:120]]
    assert (result["tasks"], result["only"], result["broken"]) == (120, [0, 10], 0)
    assert result["success"][0]["mean"] == wilson(sum(weak), 120).mean
    assert result["success"][1]["low"] == wilson(sum(strong), 120).low
    expected = paired_difference(list(map(float, strong)), list(map(float, weak)))
    assert [result["difference"][part] for part in ("mean", "low", "high")] == pytest.approx(
        [expected.mean, expected.low, expected.high]
    )
    gained = [i for i, (x, y) in enumerate(zip(weak, strong, strict=True)) if y > x]
    lost = [i for i, (x, y) in enumerate(zip(weak, strong, strict=True)) if y < x]
    assert [flip["task"] for flip in result["gained"]] == [f"test/{i}" for i in gained]
    assert [flip["task"] for flip in result["lost"]] == [f"test/{i}" for i in lost]
    assert result["same"] == 120 - len(gained) - len(lost)
    assert result["mcnemar"] == pytest.approx(mcnemar(len(gained), len(lost)))
    assert result["permutation"] == pytest.approx(result["mcnemar"])
    assert result["settings"] == {"model": ["base", "rl"]}


def test_everything_reversed_changes_sign(diff: Any, two: tuple[Path, Path]) -> None:
    forth, back = diff(*two), diff(*reversed(two))
    assert [flip["task"] for flip in forth["gained"]] == [flip["task"] for flip in back["lost"]]
    assert forth["mcnemar"] == back["mcnemar"]
    assert forth["only"] == back["only"][::-1]
    for name, measured in forth["measures"].items():
        mirrored = back["measures"][name]
        assert measured["means"] == mirrored["means"][::-1]
        assert measured["difference"]["mean"] == pytest.approx(-mirrored["difference"]["mean"])


def test_turns_reward_and_invalid_actions_are_compared_on_the_same_tasks(
    diff: Any, two: tuple[Path, Path]
) -> None:
    measures = diff(*two)["measures"]
    assert measures["turns"]["tasks"] == 120
    assert measures["turns"]["difference"]["high"] < 0  # the strong one is done sooner
    assert measures["reward"]["difference"]["low"] > 0
    assert measures["invalid_rate"]["difference"]["high"] < 0
    assert "progress" not in measures  # this world does not declare it


def test_the_flipped_episodes_can_be_shown(
    diff: Any, two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flip = diff(*two)["gained"][0]
    for run, key, end in zip(two, flip["episodes"], ("truncated", "success"), strict=True):
        assert main(["show", str(run), key]) == 0
        assert f"end: {end}" in capsys.readouterr().out


def test_repeats_are_averaged_and_have_no_mcnemar_test(diff: Any, tmp_path: Path) -> None:
    ends = {"a": [(1, 0), (0, 0), (1, 1)], "b": [(1, 1), (0, 0), (0, 1)]}
    runs = [
        store(
            tmp_path / name,
            [
                episode("eval/test", task, SUCCESS if end else FAILURE, member=member)
                for task, members in enumerate(tasks)
                for member, end in enumerate(members)
            ],
        )
        for name, tasks in ends.items()
    ]
    result = diff(*runs)
    assert result["mcnemar"] is None
    (gained,), (lost,) = result["gained"], result["lost"]
    assert (gained["task"], gained["scores"]) == ("test/0", [0.5, 1.0])
    assert gained["episodes"] == ["eval/test/0.1", "eval/test/0.0"]
    assert (lost["task"], lost["scores"]) == ("test/2", [1.0, 0.5])


def test_a_task_that_broke_on_one_side_is_left_out_and_counted(diff: Any, tmp_path: Path) -> None:
    a = store(tmp_path / "a", [episode("eval/test", i, SUCCESS) for i in range(4)])
    ends = [SUCCESS, CRASH, FAILURE, SUCCESS]
    b = store(tmp_path / "b", [episode("eval/test", i, end) for i, end in enumerate(ends)])
    result = diff(a, b)
    assert (result["tasks"], result["broken"], result["only"]) == (3, 1, [0, 0])
    assert "cannot show" in result["warning"]


def test_tasks_are_paired_by_what_they_are_and_not_by_their_place(
    diff: Any, tmp_path: Path
) -> None:
    finished = [episode("eval/test", i, SUCCESS if i < 3 else FAILURE) for i in range(6)]
    moved = [replace(e, key=Key("eval/test", place)) for place, e in enumerate(reversed(finished))]
    result = diff(store(tmp_path / "a", finished), store(tmp_path / "b", moved))
    assert result["same"] == result["tasks"] == 6


# ── which episodes are meant ─────────────────────────────────────────────────


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    phases = {"test/base": 0.2, "rl/1": 0.3, "test/rl": 0.7}
    return store(tmp_path / "trained", [e for p, r in phases.items() for e in evaluation(p, r, 40)])


def test_two_phases_of_one_run_are_compared(diff: Any, trained: Path) -> None:
    result = diff(f"{trained}:test/base", trained)
    assert (result["a"]["phase"], result["b"]["phase"]) == ("test/base", "test/rl")
    assert result["difference"]["low"] > 0
    assert result["settings"] == {}


def test_an_evaluation_is_compared_with_a_training_runs_last_test(
    diff: Any, two: tuple[Path, Path], trained: Path
) -> None:
    result = diff(two[0], trained)
    assert (result["a"]["phase"], result["b"]["phase"]) == ("eval/test", "test/rl")
    assert result["only"] == [80, 0]


def test_a_run_is_found_by_its_name(
    diff: Any, two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(two[0].parent))
    assert diff("weak", "strong:eval/test")["tasks"] == 120


def test_one_of_several_models_is_chosen_by_the_beginning_of_its_phases(
    diff: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phases = {
        f"eval/test/direct/{model}/babyai/{world}/seed-1": (model, world, rate)
        for model, rate in (("tiny", 0.6), ("random", 0.2))
        for world in ("GoToLocal", "GoToObj")
    }
    episodes = [
        finished
        for phase, (_, world, rate) in phases.items()
        for finished in evaluation(phase, rate, 20, environment=f"babyai/{world}")
    ]
    cells = [
        {"phase": p, "agent": "direct", "model": m, "temperature": 1.0, "roles": {}, "turns": t}
        for t, (p, (m, _, _)) in enumerate(phases.items())
    ]
    run = store(tmp_path / "matrix", episodes, plan={"cells": cells})
    result = diff(f"{run}:eval/test/direct/random", f"{run}:eval/test/direct/tiny")
    assert result["tasks"] == 40
    assert result["environments"] == ["babyai/GoToLocal", "babyai/GoToObj"]
    assert result["gained"][0]["task"].startswith("babyai/GoTo")
    assert result["settings"] == {"model": ["random", "tiny"], "turns": [[2, 3], [0, 1]]}
    output = refused(capsys, run, f"{run}:eval/test/direct/tiny")
    assert "direct with random, direct with tiny" in output
    assert "RUN:eval/test/direct/tiny" in output


# ── what the terminal shows ──────────────────────────────────────────────────


def test_the_terminal_shows_rates_tests_flips_and_settings(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *map(str, two)]) == 0
    shown = capsys.readouterr().out
    for part in (
        "120 tasks of babyai/GoToLocal in common; left out: 10 only in B",
        "exact McNemar p",
        "solved only by B (",
        f"palaestra show {two[0]} eval/test/",
        "detectable difference",
        "base",
        "turns",
    ):
        assert part in shown
    assert "\x1b" not in shown


def test_too_few_tasks_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        store(tmp_path / name, evaluation("eval/test", rate, 16))
        for name, rate in (("a", 0.4), ("b", 0.6))
    ]
    assert main(["diff", *map(str, runs)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Warning: With 16 tasks in common only a difference of" in output


def test_a_difference_that_was_found_needs_no_warning(diff: Any, two: tuple[Path, Path]) -> None:
    result = diff(*two)
    assert result["permutation"] < 0.05
    assert result["detectable"] > 0.1
    assert result["warning"] is None


def test_single_tasks_are_shown_without_an_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        store(tmp_path / name, [episode("eval/test", 0, end)])
        for name, end in (("a", SUCCESS), ("b", FAILURE))
    ]
    assert main(["diff", *map(str, runs)]) == 0
    output = capsys.readouterr().out
    assert "solved only by A (1)" in output
    assert "1 task in common cannot show any significant" in output


# ── what is refused ──────────────────────────────────────────────────────────


def test_other_environments_are_refused(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = store(tmp_path / "o", evaluation("eval/test", 0.5, 5, environment="babyai/GoToObj"))
    result = refused(capsys, two[0], other)
    assert "babyai/GoToLocal" in result and "babyai/GoToObj" in result


def test_other_tasks_are_refused(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = [e for e in evaluation("eval/test", 0.5, 205) if e.key.group >= 200]
    result = refused(capsys, two[0], store(tmp_path / "later", later))
    assert "test/0 to test/119" in result and "test/200 to test/204" in result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 999}, "other seed"),
        ({"parameters": {"size": 8}, "instruction": "go"}, "other instruction and parameters"),
    ],
)
def test_tasks_of_one_name_that_are_not_the_same_are_refused(
    two: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    message: str,
) -> None:
    changed = [
        replace(e, task=replace(e.task, **change)) if e.key.group == 3 else e
        for e in evaluation("eval/test", 0.5, 5)
    ]
    output = refused(capsys, two[0], store(tmp_path / "changed", changed))
    assert "test/3" in output and message in output


def test_runs_without_a_result_in_common_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = store(tmp_path / "a", [episode("eval/test", 0, CRASH)])
    b = store(tmp_path / "b", [episode("eval/test", 0, SUCCESS)])
    assert "run them again" in refused(capsys, a, b)


def test_a_run_is_not_compared_with_itself(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "itself" in refused(capsys, trained, f"{trained}:test/rl")


def test_unknown_runs_and_phases_are_refused_with_what_there_is(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "palaestra list runs" in refused(capsys, trained, tmp_path / "nothing")
    assert "Did you mean 'test/base'?" in refused(capsys, trained, f"{trained}:test/bass")
    loose = [e for phase in ("rl/1", "rl/2") for e in evaluation(phase, 0.5, 3)]
    several = store(tmp_path / "several", loose)
    assert "it has rl/1, rl/2" in refused(capsys, trained, several)
    empty = store(tmp_path / "empty", [])
    assert "no episode of it has finished" in refused(capsys, trained, empty)


# ── on real runs ─────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_expert_is_told_from_chance(palaestra: Palaestra) -> None:
    for model in ("random", "expert"):
        done = palaestra(
            "eval", "--env", "babyai/GoToLocalS5N2", "--model", model, "-n", "24",
            "--run", f"runs/{model}", "--json",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    done = palaestra("diff", "random", "expert", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["tasks"] == 24
    assert result["success"][1]["mean"] == 1.0
    assert result["difference"]["low"] > 0 and result["mcnemar"] < 0.01
    assert result["lost"] == []
    assert result["measures"]["turns"]["difference"]["high"] < 0


# ── several at once ──────────────────────────────────────────────────────────


def test_several_runs_are_compared_with_the_first_and_their_p_values_corrected(
    diff: Any, two: tuple[Path, Path], tmp_path: Path
) -> None:
    third = store(tmp_path / "same", evaluation("eval/test", 0.3, 120, seed=1), {"model": "same"})
    result = diff(*two, third)
    alone = [diff(two[0], other)["permutation"] for other in (two[1], third)]
    assert [row["p"] for row in result["others"]] == alone
    assert [row["holm"] for row in result["others"]] == holm(alone)
    assert [row["benjamini_hochberg"] for row in result["others"]] == benjamini_hochberg(alone)
    assert result["others"][0]["success"][1]["n"] == 120


def test_several_are_readable_and_none_is_the_first(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third = store(tmp_path / "third", evaluation("eval/test", 0.4, 120), {})
    assert main(["diff", *map(str, (*two, third))]) == 0
    assert "Holm" in capsys.readouterr().out
    assert "compared with itself" in refused(capsys, *two, two[0])
