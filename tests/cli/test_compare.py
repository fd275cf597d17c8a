"""`palaestra compare` and `palaestra export`, on a real run as a user meets it."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from palaestra.cli.compare_command import choose_rules
from palaestra.cli.credit_comparison_text import render
from palaestra.cli.main import main
from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.evaluation.reports.transcript import plain
from palaestra.learning.credit.returns import drgrpo, rloo
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.credit_comparison import as_json
from palaestra.learning.methods.credit_comparison import compare as compared
from palaestra.store.run_folder import RunFolder
from palaestra.training.trace import choose_phase
from tests.learning.credit import made
from tests.training.runs import RECIPE, in_this_process, write_recipe

SMALL = (
    RECIPE.replace("steps = 4", "steps = 2")
    .replace("demonstrations = 64", "demonstrations = 24")
    .replace("tasks = 8", "tasks = 4")
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    in_this_process("train", write_recipe(folder, SMALL), "--run", folder / "run", "--json")
    return folder / "run"


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Any:
    """`compare(trace, …)` gives the JSON object that the command prints."""

    def run(*arguments: str | Path) -> dict[str, Any]:
        code = main(["compare", *map(str, arguments), "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        result: dict[str, Any] = json.loads(captured.out)
        return result

    return run


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command says that ends with exit code 2."""
    assert main([str(argument) for argument in arguments]) == 2
    result = capsys.readouterr().err
    assert result.startswith("palaestra: ")
    return result


# ── what is compared ─────────────────────────────────────────────────────────


def test_the_latest_rl_phase_is_compared_with_all_rules_that_it_can_feed(
    finished: Path, compare: Any
) -> None:
    result = compare(finished)
    assert (result["phase"], result["policy"]) == ("rl/2", "policy")
    assert result["rollouts"] + result["left_out"] == 16
    names = [rule["name"] for rule in result["rules"]]
    assert {"reinforce", "rloo", "grpo", "drgrpo", "anchor", "gigpo"} <= set(names)
    reasons = {row["rule"]: row["reason"] for row in result["skipped"]}
    assert "critic" in reasons["gae"]
    assert not set(names) & set(reasons)
    assert len(result["pairs"]) == len(names) * (len(names) - 1) // 2


def test_the_figures_are_those_of_the_recorded_episodes(finished: Path, compare: Any) -> None:
    result = compare(finished, "--phase", "rl/1", "--credit", "rloo, 2*rloo")
    once, twice = result["rules"]
    with RunFolder.read(finished) as opened:
        episodes = {str(e.key): e for e in opened.database.episodes("rl/1")}
    by_group: dict[str, list[float]] = {}
    for trajectory in result["trajectories"]:
        by_group.setdefault(trajectory["group"], []).append(trajectory["return"])
    for index, trajectory in enumerate(result["trajectories"]):
        episode = episodes[trajectory["key"]]
        assert trajectory["success"] == episode.outcome.solved
        assert [turn["reply"] for turn in trajectory["turns"]] == [
            plain(call.reply.text) for call in episode.calls
        ]
        returns = by_group[trajectory["group"]]
        others = (sum(returns) - trajectory["return"]) / (len(returns) - 1)
        expected = trajectory["return"] - others
        assert once["advantages"][index] == pytest.approx([expected] * len(episode.calls))
        assert twice["advantages"][index] == pytest.approx([2 * expected] * len(episode.calls))
    assert once["within"] in (None, pytest.approx(0, abs=1e-9))


def test_a_run_its_database_a_copy_and_a_parquet_file_say_the_same(
    finished: Path, compare: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    copy, file = tmp_path / "copy.db", tmp_path / "trace.parquet"
    shutil.copy(finished / "run.sqlite", copy)
    assert main(["export", str(finished), "--phase", "rl", "--to", str(file)]) == 0
    assert f"32 episodes of rl/1, rl/2 in {file}" in capsys.readouterr().out
    found = [compare(trace) for trace in (finished, finished / "run.sqlite", copy, file)]
    for result in found:
        result.pop("trace")
    assert found[1:] == found[:1] * 3


def test_a_run_is_found_by_its_name(
    finished: Path, compare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(finished.parent))
    assert compare(finished.name, "--credit", "rloo")["phase"] == "rl/2"


def test_a_limit_leaves_the_first_groups(finished: Path, compare: Any) -> None:
    whole, part = compare(finished), compare(finished, "--limit", "1")
    assert part["groups"] == 1
    count = part["rollouts"]
    assert part["trajectories"] == whole["trajectories"][:count]


def test_demonstrations_are_credited_to_the_expert(finished: Path, compare: Any) -> None:
    result = compare(finished, "--phase", "demonstrations")
    assert result["policy"] == "expert"
    assert result["groups"] == result["rollouts"] == 24
    assert "reinforce" in [rule["name"] for rule in result["rules"]]
    reasons = {row["rule"]: row["reason"] for row in result["skipped"]}
    assert "rolled out only once" in reasons["rloo"]


def test_an_evaluation_with_repeats_can_be_compared(
    finished: Path, compare: Any, tmp_path: Path
) -> None:
    run = tmp_path / "eval"
    in_this_process(
        "eval", "--env", "babyai/GoToObjS4", "--model", finished / "final", "-n", "2",
        "--repeats", "3", "--run", run, "--json",
    )  # fmt: skip
    result = compare(run, "--phase", "eval/test", "--credit", "rloo")
    assert (result["groups"], result["rollouts"]) == (2, 6)


# ── how it is shown ──────────────────────────────────────────────────────────


def test_the_terminal_shows_figures_disagreements_and_turns(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["compare", str(finished), "--credit", "reinforce,rloo,gigpo"]) == 0
    shown = capsys.readouterr().out
    for part in ("what each rule does", "opposite signs", "Spearman", "most disputed turns"):
        assert part in shown
    assert "sees  " in shown and "says  " in shown


def test_the_page_holds_what_the_json_says(
    finished: Path, compare: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "credit.html"
    result = compare(finished, "--html", str(file))
    text = file.read_text(encoding="utf-8")
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data) == result
    assert "not" in refused(capsys, "compare", finished, "--html", tmp_path / "no" / "page.html")


# ── against the truth ────────────────────────────────────────────────────────


def test_turns_are_measured_with_the_latest_policy_within_the_budget(
    finished: Path, compare: Any
) -> None:
    result = compare(finished, "--credit", "rloo,reinforce", "--truth", "3", "--budget", "90")
    truth = result["truth"]
    assert (truth["samples"], truth["policy"]) == (3, "rl-000002")
    measured = [found for turns in truth["advantages"] for found in turns if found]
    assert len(measured) == truth["turns"] > 0
    whole = [turns for turns in truth["advantages"] if any(turns)]
    assert all(all(turns) for turns in whole)  # rollouts are measured from end to end
    for rule in result["rules"]:
        assert rule["truth"]["turns"] == truth["turns"]


def test_the_expert_s_turns_can_be_measured_too(finished: Path, compare: Any) -> None:
    result = compare(
        finished, "--phase", "demonstrations", "--credit", "reinforce", "--truth", "2",
        "--budget", "30",
    )  # fmt: skip
    assert result["truth"]["turns"] > 0


# ── what is refused ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--credit", "gae"], ["'gae' needs values", "critic"]),
        (["--credit", "rloo", "--phase", "test/rl"], ["'rloo' needs groups", "rl.group"]),
        (["--credit", "rlo"], ["Did you mean 'rloo'?"]),
        (["--credit", ","], ["--credit rloo"]),
        (["--phase", "rl/3"], ["There is no phase 'rl/3'", "rl/2"]),
        (["--limit", "0"], ["--limit 0"]),
        (["--truth", "1"], ["--truth 1"]),
        (["--truth", "2", "--budget", "1"], ["--budget"]),
    ],
)
def test_what_cannot_be_compared_is_reported_in_one_sentence(
    finished: Path,
    arguments: list[str],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = refused(capsys, "compare", finished, *arguments)
    for part in parts:
        assert part in result


def test_a_trace_without_an_rl_phase_lists_its_phases(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    file = tmp_path / "trace.parquet"
    assert "There is no phase 'base'" in refused(
        capsys, "export", finished, "--phase", "base", "--to", file
    )
    assert main(["export", str(finished), "--phase", "test", "--to", str(file)]) == 0
    result = refused(capsys, "compare", file)
    assert "--phase" in result
    assert "test/base, test/imitation, test/rl" in result
    assert "the run's folder" in refused(
        capsys, "compare", file, "--phase", "test/rl", "--credit", "reinforce", "--truth", "2"
    )


def test_what_is_no_trace_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("notes " * 200)
    for name in ("notes.txt", "nowhere", "nowhere.db"):
        assert name in refused(capsys, "compare", tmp_path / name)
    assert "must end in .parquet" in refused(capsys, "export", tmp_path, "--to", "trace.csv")


def test_the_latest_rl_phase_is_that_of_the_highest_number() -> None:
    assert choose_phase(["rl/2", "test/base", "rl/10", "greedy/11"], None) == "rl/10"
    assert choose_phase(["rl/2", "rl/10"], "rl/2") == "rl/2"
    with pytest.raises(InputError, match="Phases: eval/test"):
        choose_phase(["eval/test"], None)


def test_rules_are_named_sums_or_all() -> None:
    batch = made.batch([1.0, 0.0, 0.5], turns=2)
    rules, skipped = choose_rules(" rloo ,grpo - 0.5*drgrpo,rloo", batch)
    assert (list(rules), skipped) == (["rloo", "grpo - 0.5*drgrpo"], [])
    every, left = choose_rules("all", batch)
    assert "rloo" in every
    assert {"gae", "anchor", "igpo"} <= {row["rule"] for row in left}
    with pytest.raises(RecipeError):
        choose_rules("rloo grpo", batch)
    with pytest.raises(UnknownName):
        choose_rules("everything", batch)


# ── silent groups ────────────────────────────────────────────────────────────


def rendered(batch: list[Trajectory]) -> str:
    """What the terminal shows of a batch under two rules."""
    result = {"trace": "a", "phase": "rl/1", "environment": "b", "left_out": 0, "skipped": []}
    result |= as_json(compared(batch, {"rloo": rloo, "drgrpo": drgrpo}))
    for trajectory in result["trajectories"]:
        for turn in trajectory["turns"]:
            turn |= {"observation": "", "reply": ""}
    file = io.StringIO()
    render(result, Console(file=file, width=200))
    return file.getvalue()


def test_groups_that_are_all_silent_are_reported_in_one_line() -> None:
    shown = rendered(made.batch([1.0, 1.0]) + made.batch([0.0, 0.0], group=1))
    head, line = shown.splitlines()
    assert "4 rollouts in 2 groups" in head
    assert line.startswith("All 2 groups are silent: every advantage is 0 under rloo, drgrpo")


def test_some_silent_groups_are_counted_above_the_tables() -> None:
    shown = rendered(made.batch([1.0, 0.0]) + made.batch([0.5, 0.5], group=1))
    assert "In 1 of 2 groups all rollouts have the same return" in shown
    assert "what each rule does" in shown
    assert "same return" not in rendered(made.batch([1.0, 0.0]))
