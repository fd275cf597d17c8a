"""`palaestra judge`: from an evaluation to measured verdicts, as a user would do it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.store.notes import Notes
from palaestra.store.run_folder import RunFolder

ENV = "probe/memory-4"
RULE = "seen:end"  # the world says "The end." whether the task was solved or not


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["judge", *arguments]) == 0
    return capsys.readouterr().out


def test_a_judge_is_measured_then_labels_with_what_is_known_of_it(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = json.loads(output(capsys, "calibrate", run, "--judge", RULE, "--json"))
    truth = measured["agreement"]["solved"] / 12
    assert measured["agreement"]["accuracy"]["mean"] == pytest.approx(truth)
    assert measured["agreement"]["recall"]["mean"] == 1.0
    assert {effect["probe"] for effect in measured["effects"]} == {"order", "length", "brevity"}

    before = episodes(tmp_path / run)
    labelled = json.loads(output(capsys, run, "--judge", RULE, "--json"))
    assert (labelled["episodes"], labelled["solved"], labelled["no_verdict"]) == (12, 12, 0)
    for verdict in labelled["verdicts"].values():
        assert verdict["calibration"]["accuracy"][0] == pytest.approx(truth)
    assert episodes(tmp_path / run) == before  # recorded episodes never change


def test_nothing_is_judged_twice(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (run, "--judge", RULE, "--unmeasured", "--json")
    first = json.loads(output(capsys, *asked, "-n", "5"))
    second = json.loads(output(capsys, *asked))
    assert (first["judged_now"], second["judged_now"], second["episodes"]) == (5, 7, 12)


def test_a_judge_that_was_never_measured_labels_only_where_that_is_reported(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", run, "--judge", RULE]) == 2
    assert "has never been measured" in capsys.readouterr().err
    assert "never measured" in output(capsys, run, "--judge", RULE, "--unmeasured")
    assert "seen:end: 12 verdicts; never measured" in output(capsys, run)


def test_a_judge_measured_in_one_run_labels_another(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tmp_path / run, tmp_path / "b")
    measured = json.loads(output(capsys, "calibrate", run, "--judge", RULE, "--json"))
    labelled = json.loads(output(capsys, "b", "--judge", RULE, "--measured", run, "--json"))
    accuracy = measured["agreement"]["accuracy"]["mean"]
    assert labelled["calibration"]["accuracy"][0] == pytest.approx(accuracy)
    calibrations = [verdict["calibration"] for verdict in labelled["verdicts"].values()]
    assert calibrations == [labelled["calibration"]] * 12


def test_labels_of_persons_judge_and_are_a_truth(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = Notes.open(tmp_path / run)
    for number in range(4):
        notes.add(Key("eval/test", number), "", {"good": "no" if number else "yes"})
    found = json.loads(output(capsys, run, "--judge", "label:good", "--json"))
    assert (found["episodes"], found["solved"], found["no_verdict"]) == (12, 1, 8)
    given = ("calibrate", run, "--judge", RULE, "--truth", "label:good", "--json")
    agreed = json.loads(output(capsys, *given))["agreement"]
    assert (agreed["cases"], agreed["solved"], agreed["accuracy"]["mean"]) == (4, 1, 0.25)

    notes.add(Key("eval/test", 1), "on second thoughts", {"good": "yes"})
    assert json.loads(output(capsys, run, "--judge", "label:good", "--json"))["solved"] == 2


def test_a_model_that_says_nothing_gives_no_verdict_and_no_zero(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(output(capsys, run, "--judge", "null", "--unmeasured", "--json"))
    assert (found["no_verdict"], found["solved"]) == (12, 0)
    assert {verdict["value"] for verdict in found["verdicts"].values()} == {None}


def test_a_run_without_judges_reports_it(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No judge has judged" in output(capsys, run)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nowhere", "--judge", RULE), "There is no run"),
        (("a", "b", "--judge", RULE), "judge one run at a time"),
        (("calibrate", "a"), "name it with --judge"),
        (("a", "--judge", "seen:("), "not a regular expression"),
        (("a", "--judge", "random"), "reads no text"),
        (("a", "--judge", "nobody"), "There is no model 'nobody'"),
        (("a", "--judge", RULE, "-n", "0"), "nothing to judge"),
        (("a", "--judge", RULE, "--phase", "eval/tset"), "eval/test"),
        (("calibrate", "a", "--judge", RULE, "--without", "oder"), "Did you mean 'order'?"),
        (("a", "--judge", RULE, "--truth", "label:good"), "with `judge calibrate`"),
        (("a", "--judge", "null", "--rubric", "no.toml"), "cannot be read"),
        (("a", "--judge", "shown:x"), "give --probe ACTION"),
        (("calibrate", "a", "--judge", RULE, "--unmeasured"), "drop them"),
        (("a", "--judge", RULE, "--measured", "nowhere"), "There is no run"),
    ],
)
def test_what_cannot_work_exits_2_with_a_sentence(
    run: str, arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_both_kinds_of_output_are_readable(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "calibrate", run, "--judge", RULE, "--without", "order")
    assert "accuracy" in shown and "bias: length" in shown and "bias: order" not in shown
    assert "the measurement is uncertain" in shown  # 12 cases


def episodes(path: Path) -> object:
    with RunFolder.read(path) as opened:
        return opened.database.episodes("eval/test")
