"""`palaestra eval`, `leaderboard`, `advise` and `ctl`: what they take, print and refuse."""

from __future__ import annotations

import csv
import json
import socket
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.store.run_folder import RunFolder

WORLD, OTHER = "probe/umbrella-4", "probe/memory-4"

SUITE = f"""
name = "pair"
version = 1
metrics = ["success", "turns"]

[[entries]]
environment = "{WORLD}"
tasks = 4

[[entries]]
environment = "{OTHER}"
tasks = [1, 3, 5]
weight = 3.0
repeats = 2
"""

QUICK = ("--workers", "0", "--json")


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAESTRA_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture
def suite(tmp_path: Path) -> str:
    file = tmp_path / "pair.toml"
    file.write_text(SUITE)
    return str(file)


def output(capsys: pytest.CaptureFixture[str]) -> dict:  # type: ignore[type-arg]
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_one_cell_is_reported_flat_and_lies_in_its_usual_phase(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    arguments = ["eval", "--env", WORLD, "--model", "expert", "-n", "4", "--run", str(runs / "a")]
    assert main([*arguments, *QUICK]) == 0
    result = output(capsys)
    assert (result["environment"], result["agent"], result["model"]) == (WORLD, "direct", "expert")
    assert (result["success"], result["tasks"], result["complete"]) == (1.0, 4, True)
    with RunFolder.read(runs / "a") as run:
        assert run.database.phases() == ["eval/test"]
        assert run.database.get("evaluation") == result
        assert run.database.get("recipe")["environment"] == WORLD


def test_episodes_without_a_result_are_counted_beside_the_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as shut:  # bound, but not listening
        shut.bind(("127.0.0.1", 0))
        model = f"openai:m@http://127.0.0.1:{shut.getsockname()[1]}/v1?attempts=1"
        asked = ["eval", "--env", WORLD, "-n", "2", "--workers", "0", "--model", model]
        main(asked)
        shown = capsys.readouterr().out
        assert "2 of 2 episodes excluded: 2 error(connection, infrastructure)" in shown
        main([*asked, "--model", "expert"])
        assert "2 infrastructure" in capsys.readouterr().out


def test_options_that_are_repeated_make_a_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", "--env", WORLD, "--env", OTHER, "--agent", "direct", "--agent", "react"]
    arguments += ["--model", "random", "--model", "expert", "--seed", "1", "--seed", "2", "-n", "2"]
    assert main([*arguments, *QUICK]) == 0
    result = output(capsys)
    assert len(result["cells"]) == 16
    assert result["episodes"] == result["planned"] == 32
    assert {cell["success"] for cell in result["cells"] if cell["model"] == "expert"} == {1.0}


def test_a_suite_says_what_is_evaluated(
    suite: str, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    run = str(runs / "s")
    assert main(["eval", "--suite", suite, "--model", "random", "--run", run, *QUICK]) in (0, 1)
    result = output(capsys)
    assert result["suite"].startswith("pair v1 (")
    assert [(c["environment"], c["episodes"], c["tasks"]) for c in result["cells"]] == [
        (WORLD, 4, 4),
        (OTHER, 6, 3),
    ]
    main(["leaderboard", run, "--json"])
    board = output(capsys)
    assert board["hash"] == result["hash"]
    assert board["weights"] == {OTHER: 3.0, WORLD: 1.0}
    assert set(board["contenders"][0]["worlds"][OTHER]["by_task"]) == {"1", "3", "5"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--env", WORLD], "--model is missing"),
        (["--model", "random"], "Set either --env (environments) or --suite"),
        (["--env", WORLD, "--model", "random", "--suite", "x.toml"], "not both"),
        (["--env", WORLD, "--env", WORLD, "--model", "random"], "is given twice"),
        (["--env", WORLD, "--model", "random", "--model", "random"], "is given twice"),
        (["--env", WORLD, "--model", "random", "--shard", "3/2"], "write K/N"),
        (["--env", WORLD, "--model", "random", "--price", "random"], "is malformed"),
        (["--env", WORLD, "--model", "random", "--price", "gpt=1/2"], "names no model"),
        (["--env", WORLD, "--model", "random", "--budget-money", "1"], "needs prices"),
        (["--env", WORLD, "--model", "random", "--budget-tokens", "0"], "leaves nothing to do"),
        (["--env", WORLD, "--model", "random", "--deadline", "0"], "leaves nothing to do"),
        (["--env", WORLD, "--model", "random", "--tried", "0"], "leaves nothing to do"),
        (["--env", WORLD, "--model", "random", "--concurrency", "0"], "N of 1 or more"),
        (["--env", WORLD, "--model", "random", "--concurrency", "gpt=2"], "names no model"),
        (["--env", WORLD, "--model", "random", "--workers", "-1"], "give 0 or more"),
        (["--env", WORLD, "--model", "random", "--role", "user"], "write --role NAME=MODEL"),
        (["--suite", "none.toml", "--model", "random"], "'none.toml' cannot be read"),
    ],
)
def test_what_cannot_be_exits_2_with_a_sentence_before_anything_starts(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    assert main(["eval", *arguments]) == 2
    shown = capsys.readouterr().err
    assert reason in shown and shown.count("\n") == 1
    assert not runs.exists()


def test_options_that_a_suite_or_a_run_has_settled_are_refused_not_ignored(
    suite: str, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    assert main(["eval", "--suite", suite, "--model", "random", "-n", "3"]) == 2
    assert "-n is set by the suite 'pair'; drop it" in capsys.readouterr().err
    run = str(runs / "a")
    assert main(["eval", "--env", WORLD, "--model", "expert", "-n", "2", "--run", run, *QUICK]) == 0
    for option in (["--seed", "2"], ["--temperature", "0"], ["--run", "b"]):
        assert main(["eval", "--resume", run, *option]) == 2
        assert f"{option[0]} is fixed in a resumed run; drop it" in capsys.readouterr().err


def test_a_suite_with_a_missing_environment_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    file = tmp_path / "odd.toml"
    file.write_text(SUITE.replace(OTHER, "probe/memroy-4"))
    assert main(["eval", "--suite", str(file), "--model", "random"]) == 2
    shown = capsys.readouterr().err
    assert "The suite 'pair' names 'probe/memroy-4'" in shown
    assert "Did you mean 'memory-4'" in shown or "memory-4" in shown
    assert not runs.exists()


def test_a_world_with_few_tasks_gives_each_of_them_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "three.py").write_text(THREE)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["eval", "--env", "three:Three/x", "--model", "random", "-n", "64", *QUICK]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tasks"] == 3
    assert "has 3 test tasks, and each of them is taken once" in captured.err


THREE = """
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import TaskSet

class Three(Environment):
    instructions = "Say yes."
    @classmethod
    def tasks(cls, environment): return TaskSet(environment, size=3)
    def reset(self, task): return Observation("yes?")
    def step(self, action): return Transition(Observation(""), 1.0, terminated=True, success=True)
    def sample_action(self, dice): return Action("yes")
    def close(self): ...
"""


def test_shards_are_joined_by_the_leaderboard(
    suite: str, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    common = ["eval", "--suite", suite, "--model", "random", "--model", "expert", *QUICK]
    for shard in ("1/2", "2/2"):
        main([*common, "--shard", shard, "--run", str(runs / shard.replace("/", "-"))])
        assert output(capsys)["shard"] == shard
    main([*common, "--run", str(runs / "whole")])
    capsys.readouterr()
    boards = []
    for of in (["1-2", "2-2"], ["whole"], ["1-2"]):
        assert main(["leaderboard", *of, "--json"]) == 0  # runs by their names
        boards.append(output(capsys))
    for one, other in zip(boards[0]["contenders"], boards[1]["contenders"], strict=True):
        assert one["success"] == other["success"]
        assert {w: s["by_task"] for w, s in one["worlds"].items()} == {
            w: s["by_task"] for w, s in other["worlds"].items()
        }
    assert not any(candidate["ranked"] for candidate in boards[2]["contenders"])


def test_the_leaderboard_is_written_in_every_form(
    capsys: pytest.CaptureFixture[str], runs: Path, tmp_path: Path
) -> None:
    for model in ("random", "expert"):
        run = str(runs / model)
        main(["eval", "--env", WORLD, "--model", model, "-n", "4", "--run", run, *QUICK])
    capsys.readouterr()
    files = [tmp_path / f"board{form}" for form in (".md", ".html", ".csv", ".json")]
    writing = [part for file in files for part in ("--to", str(file))]
    assert main(["leaderboard", "random", "expert", "--cost", "turns", *writing]) == 0
    assert capsys.readouterr().out == files[0].read_text()
    assert "| 1 | direct, expert |" in files[0].read_text()
    assert "<table>" in files[1].read_text()
    assert len(list(csv.reader(files[2].open()))) == 5
    assert json.loads(files[3].read_text())["cost"] == "turns"
    assert main(["leaderboard", "random", "--to", "board.pdf"]) == 2
    assert main(["leaderboard", "random", "--cost", "luck"]) == 2


def test_advice_names_the_best_and_exits_1_where_no_one_fits(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    arguments = ["eval", "--env", WORLD, "--model", "random", "--model", "expert", "-n", "24"]
    main([*arguments, "--run", str(runs / "a"), *QUICK])
    capsys.readouterr()
    assert main(["advise", "a", "--cost", "turns"]) == 0
    assert capsys.readouterr().out.startswith("Choose direct, random: success")
    assert main(["advise", "a", "--max-seconds-per-task", "1e-9"]) == 1
    assert capsys.readouterr().out.startswith("No candidate fits.")
    assert main(["advise", "a", "--min-success", "7"]) == 2


def test_a_training_run_or_nothing_is_no_evaluation(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    RunFolder.create(runs / "other", {"rl": {}}).close()
    for command in (["leaderboard", "other"], ["advise", "other"], ["ctl", "other", "status"]):
        assert main(command) == 2
        assert "is no evaluation" in capsys.readouterr().err
    assert main(["eval", "--resume", str(runs / "other")]) == 2
    assert main(["leaderboard", "nothing"]) == 2


def test_control_reports_the_state_of_a_run_and_refuses_what_means_nothing(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    arguments = ["eval", "--env", WORLD, "--model", "expert", "-n", "4", "--run", str(runs / "a")]
    main([*arguments, *QUICK])
    capsys.readouterr()
    assert main(["ctl", "a", "status"]) == 0
    assert "done, 4 of 4 episodes, 16 steps" in capsys.readouterr().out
    assert main(["ctl", "a", "cancel"]) == main(["ctl", "a", "pause"]) == 1
    assert main(["ctl", "a", "concurrency"]) == 2
    assert main(["ctl", "a", "pause", "3"]) == 2
    assert main(["ctl", "a", "concurrency", "0"]) == 2


def test_a_table_of_several_cells_is_printed_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["eval", "--env", WORLD, "--model", "random", "--model", "expert", "-n", "4"]
    main([*arguments, "--workers", "0"])
    shown = capsys.readouterr().out
    assert "direct, expert" in shown and "100.0" in shown
    assert "8 of 8 episodes" in shown and "palaestra leaderboard" in shown


def test_money_stands_in_the_sum_the_totals_and_the_table_as_far_as_it_is_known(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    arguments = ["eval", "--env", WORLD, "--model", "random", "--model", "expert", "-n", "2"]
    arguments += ["--workers", "0", "--price", "random=0/0"]
    main([*arguments, "--run", str(runs / "a")])
    output = " ".join(capsys.readouterr().out.split())
    assert "at least 0.0000, without" in output and "calls to models without a price" in output
    with RunFolder.read(runs / "a") as run:
        found, totals = run.database.get("evaluation"), run.database.get("totals")
        assert run.database.get("machine")["cores"] >= 1
    assert [cell["money"] for cell in found["cells"]] == [0.0, None]
    assert found["money"] == totals["money"] == 0.0
    assert found["unpriced_calls"] == totals["unpriced_calls"] > 0
    main(["eval", "--env", WORLD, "--model", "expert", "-n", "2", *QUICK])
    assert json.loads(capsys.readouterr().out)["money"] is None


def test_every_measure_of_a_run_is_told_with_pass_at_k_where_tasks_were_repeated(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    arguments = ["eval", "--env", WORLD, "--model", "random", "-n", "3", "--repeats", "2"]
    main([*arguments, "--run", str(runs / "a"), *QUICK])
    capsys.readouterr()
    assert main(["show", "a", "--metrics", "--by", "environment", "--json"]) == 0
    found = output(capsys)["eval/test"]
    assert found["metrics"]["turns"]["tasks"] == 3 and found["episodes"] == 6
    assert set(found["repeats"]) == {"pass@2", "pass^2"}
    assert found["repeats"]["pass@2"]["mean"] >= found["metrics"]["success"]["mean"]
    assert list(found["by"]) == [WORLD]
    assert main(["show", "a", "--metrics"]) == 0
    assert "invalid_rate" in capsys.readouterr().out
    assert main(["show", "a", "--by", "environment"]) == 2
    assert main(["show", "a", "--context", "100"]) == 2
    assert main(["show", "a", "--metrics", "--context", "0"]) == 2
    assert main(["show", "a", "--metrics", "--by", "luck"]) == 2


def test_a_run_tells_how_turns_change_how_full_the_context_was_and_how_sure_the_agent(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    arguments = ["eval", "--env", WORLD, "--agent", "react?confidence=yes", "--model", "expert"]
    main([*arguments, "-n", "3", "--run", str(runs / "a"), *QUICK])
    capsys.readouterr()
    assert main(["show", "a", "--drift", "--metrics", "--context", "4096", "--json"]) == 0
    found = output(capsys)["eval/test"]
    assert sum(found["drift"]["invalid"]["counts"]) == 3 * found["metrics"]["turns"]["mean"]
    assert len(found["drift"]["invalid"]["parts"]) == 5
    longest = found["metrics"]["largest_prompt"]["mean"]
    if longest is not None:
        assert found["metrics"]["context_use"]["mean"] == pytest.approx(longest / 4096)
    assert (found["calibration"]["n"], found["calibration"]["brier"]) == (3, 0.0)
    assert main(["show", "a", "--drift"]) == 0
    assert "later half minus earlier" in capsys.readouterr().out
    assert main(["show", "a", "--metrics"]) == 0
    assert "self-reports: 3 of 3 episodes, Brier 0.000" in capsys.readouterr().out


def test_what_a_search_tries_is_bounded(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    asked = ["eval", "--env", WORLD, "--agent", "best_of_n?n=4", "--model", "random", "-n", "2"]
    main([*asked, "--tried", "3", "--run", str(runs / "a"), *QUICK])
    capsys.readouterr()
    with RunFolder.read(runs / "a") as run:
        finished = run.database.episodes("eval/test")
    assert [episode.usage.tried for episode in finished] == [3, 3]  # else four tries to the end


def test_a_factor_is_varied_alone_and_compared_task_by_task(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    run = str(runs / "a")
    arguments = ["eval", "--env", "apps/easy", "--factor", "tools", "--model", "expert", "-n", "2"]
    assert main([*arguments, "--run", run, *QUICK]) == 0
    found = output(capsys)["compared"]
    ids = [f"apps/easy{form}" for form in ("", ":all", ":discover", ":code")]
    assert (found["factor"], found["base"]) == ("tools", "apps/easy")
    assert [row["environment"] for row in found["rows"]] == ids
    assert [row["difference"] for row in found["rows"]] == [None, 0.0, 0.0, 0.0]
    assert main(["eval", "--resume", run, "--workers", "0"]) == 0
    assert "what 'tools' changes: the difference from apps/easy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", WORLD], f"'{WORLD}' has no factor 'tools'; drop it"),
        (["--env", "apps/goal", "--factor", "colour"], "choose from: tools, operator"),
        (["--env", "apps/easy", "--env", "apps/goal"], "varies one environment, and 2 are given"),
    ],
)
def test_factors_that_do_not_exist_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "--factor", "tools", *arguments, "--model", "expert"]) == 2
    assert message in capsys.readouterr().err


def test_a_suite_and_a_resumed_run_take_no_factor(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "--suite", suite, "--factor", "tools", "--model", "expert"]) == 2
    assert "--factor needs --env" in capsys.readouterr().err
    assert main(["eval", "--resume", "a", "--factor", "tools"]) == 2
    assert "--factor is fixed in a resumed run" in capsys.readouterr().err
