"""`palaestra explain`: the losing turn, suspicions, robustness, and how often it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.store.run_folder import RunFolder

ENV = "probe/umbrella-4"


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["explain", *arguments]) == 0
    return capsys.readouterr().out


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(output(capsys, *arguments, "--json"))


def failed(run: str, path: Path, solved: bool = False) -> str:
    with RunFolder.read(path / run) as opened:
        of = [e for e in opened.database.episodes("eval/test") if e.outcome.solved is solved]
    return str(of[0].key)


def test_every_failure_in_the_umbrella_world_is_lost_on_the_first_day(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = found(capsys, run)
    assert result["failed"] == len(result["episodes"]) > 0
    for episode in result["episodes"]:
        best = episode["attributions"][0]
        assert (best["method"], best["exact"], best["turn"]) == ("oracle", True, 0)
    assert "lost at turn" in output(capsys, run)


def test_one_episode_is_shown_turn_by_turn_and_kept(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = failed(run, tmp_path)
    shown = output(capsys, run, key, "--save")
    (verdict,) = [line for line in shown.splitlines() if line.startswith("verdict: ")]
    assert verdict.startswith("verdict: lost at turn 1 (agent)")
    assert verdict.endswith("(by oracle, exact)")
    with RunFolder.read(tmp_path / run) as opened:
        stored = opened.database.get(f"explain/{key}")
    assert [one["method"] for one in stored] == ["oracle", "words"]


def test_the_exact_method_is_believed_and_the_others_stand_beside_it(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = failed(run, tmp_path)
    result = found(capsys, run, key)
    assert result["verdict"]["method"] == "oracle"
    words = next(one for one in result["attributions"] if one["method"] == "words")
    shown = output(capsys, run, key)
    (besides,) = [line for line in shown.splitlines() if line.startswith("besides: ")]
    assert "words" in besides
    assert ("agrees" in besides) == (words["turn"] == result["verdict"]["turn"])
    assert shown.count("lost at turn") == 1


def test_where_no_method_can_say_the_verdict_reports_it(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (run, failed(run, tmp_path), "--by", "judge", "--judge", "null")
    assert found(capsys, *asked)["verdict"] is None
    assert "verdict: no method can say which turn lost it" in output(capsys, *asked)


def test_the_recorded_policy_and_chance_can_go_on_from_each_turn(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = failed(run, tmp_path)
    result = found(
        capsys, run, key, "--by", "policy", "--by", "chance", "--model", "random", "--samples", "6"
    )
    assert [one["method"] for one in result["attributions"]] == ["chance", "policy"]
    assert {one["turn"] for one in result["attributions"]} == {0}


def test_a_model_that_labels_nothing_blames_no_one(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = found(capsys, run, failed(run, tmp_path), "--by", "judge", "--judge", "null")
    assert [(one["method"], one["ending"]) for one in result["attributions"]] == [
        ("judge", "unknown")
    ]


def test_honest_episodes_are_not_suspicious(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys, run, "--shortcuts")["findings"] == []
    assert "0 of 12 episodes are suspicious" in output(capsys, run, "--shortcuts")


def test_robustness_is_paired_by_task(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--robustness", ENV, "--model", "expert", "-n", "6", "--turns", "4")
    result = found(capsys, *asked, "--factor", "errors=0.4", "--factor", "stale=0.5")
    by_name = {factor["name"]: factor for factor in result["factors"]}
    assert by_name["as it is"]["success"]["mean"] == 1.0
    assert by_name["errors=0.4"]["robustness"]["mean"] < 0.7  # no turn is left to try again
    assert by_name["stale=0.5"]["robustness"]["mean"] == 1.0  # the expert does not look


def test_methods_are_measured_on_planted_errors(capsys: pytest.CaptureFixture[str]) -> None:
    result = found(capsys, "--planted", ENV, "-n", "6", "--samples", "4")
    assert result["methods"]["oracle"]["right"]["mean"] == 1.0
    assert result["methods"]["last turn"]["right"]["mean"] == 0.0
    assert "names the turn" in output(capsys, "--planted", ENV, "-n", "2", "--samples", "2")


def test_a_success_is_not_explained(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", run, failed(run, tmp_path, solved=True)]) == 2
    assert "name a failed episode" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "name a run"),
        (("nowhere",), "There is no run"),
        (("a", "eval/tst/0"), "There is no episode"),
        (("a", "eval/test/0", "--by", "orakel"), "Did you mean 'oracle'?"),
        (("a", "eval/test/0", "--by", "judge"), "name it with --judge"),
        (("a", "eval/test/0", "--by", "policy"), "name it with --model"),
        (("a", "--samples", "0"), "--samples 0 leaves nothing"),
        (("a", "-n", "0"), "-n 0 leaves nothing"),
        (("a", "--planted", ENV), "need no run"),
        (("--robustness", ENV), "name it with --model"),
        (("--robustness", ENV, "--model", "expert", "--factor", "eror=1"), "errors"),
        (("--planted", "probe/umbrela-4"), "Did you mean 'umbrella-4'?"),
        (("--planted", "openspiel/connect_four", "-n", "1"), "no oracle"),
    ],
)
def test_what_cannot_work_exits_2_with_a_sentence(
    run: str, arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == 2
    assert why in capsys.readouterr().err
