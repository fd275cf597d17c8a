"""`Results.judge`: verdicts on recorded episodes, and how far they agree with the outcomes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import palaestra as pa
from palaestra.api.policy import Policy
from palaestra.cli.main import main
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.api.worlds import Door

RUBRIC = {"question": "Is it open?", "criteria": ["The door is open."]}


def evaluated() -> pa.Results:
    return pa.evaluate(Door, model="random", n=12, seed=3, progress=False)


def policy(reply: str) -> Any:
    """What `load` returns, of a model that always says the same."""
    return Policy("same", ScriptedModel(lambda messages: reply, name="same"))


def test_a_judge_that_reads_what_happened_agrees_with_every_outcome() -> None:
    judged = evaluated().judge("seen:It opens")
    accuracy, kappa = judged.agreement.accuracy, judged.agreement.kappa
    assert accuracy is not None and accuracy.mean == 1.0
    assert kappa is not None and kappa.mean == 1.0
    assert judged.disagreements == []
    assert len(judged.verdicts) == 12 and "accuracy      1.00" in str(judged)


def test_a_judge_that_believes_everything_is_shown_where_it_is_wrong() -> None:
    results = evaluated()
    failed = [episode.key for episode in results.episodes if not episode.outcome.solved]
    assert 0 < len(failed) < 12
    judged = results.judge("seen:.", progress=False)
    assert [episode.key for episode, _ in judged.disagreements] == failed
    assert all(verdict.reason for _, verdict in judged.disagreements)
    kappa = judged.agreement.kappa
    assert kappa is not None and kappa.mean == 0.0


def test_it_measures_what_the_command_line_measures_and_keeps_it_in_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = evaluated()
    judged = results.judge("seen:It opens", probes=["order", "length"])
    folder = str(results.folder)
    assert main(["judge", folder]) == 0
    assert "seen:It opens: 12 verdicts; measured on 12 cases" in capsys.readouterr().out
    assert main(["judge", folder, "--judge", "seen:It opens", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judged_now"] == 0  # nothing is judged twice
    assert main(["judge", "calibrate", folder, "--judge", "seen:It opens", "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    ours = json.loads(json.dumps(judged.calibration.as_json()))
    assert ours["agreement"] == theirs["agreement"] and ours["effects"] == theirs["effects"]


@pytest.mark.parametrize(("reply", "verdict"), [("1: yes", True), ("1: no", False), ("Hm.", None)])
def test_a_model_in_this_process_answers_a_rubric(reply: str, verdict: bool | None) -> None:
    judged = evaluated().judge(policy(reply), rubric=RUBRIC)
    assert {given.solved for _, given in judged.verdicts} == {verdict}
    assert judged.calibration.judge == "model:same@rubric"
    silent = 12 if verdict is None else 0
    assert judged.agreement.silent == silent


def test_a_rubric_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "open.toml"
    file.write_text('[rubric]\nquestion = "Is it open?"\ncriteria = ["The door is open."]\n')
    judged = evaluated().judge(policy("1: yes"), rubric=str(file))
    assert judged.calibration.judge == "model:same@open"


def test_notebooks_get_a_table() -> None:
    judged = evaluated().judge("seen:<b>")
    html = judged._repr_html_()
    assert "<td>accuracy</td>" in html and "<b>seen:&lt;b&gt;</b>" in html
    assert repr(judged) == "<Judgement of 12 episodes by seen:<b>>"


def test_it_can_be_awaited_inside_a_running_loop() -> None:
    async def cell() -> float:
        found = (await evaluated().ajudge("seen:It opens")).agreement.accuracy
        return found.mean if found else 0.0

    assert asyncio.run(cell()) == 1.0


@pytest.mark.parametrize(
    ("judge", "options", "reason"),
    [
        ("smollm", {}, "There is no model 'smollm'"),
        ("expert", {}, "reads no text"),
        ("seen:.", {"rubric": RUBRIC}, "a rubric needs a model"),
        ("seen:.", {"rubrics": RUBRIC}, "There is no option of judge 'rubrics'"),
        ("seen:.", {"probes": ["lenght"]}, "There is no probe of judges 'lenght'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    judge: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(pa.PalaestraError) as refused:
        evaluated().judge(judge, **options)
    assert reason in str(refused.value)


def test_a_rubric_without_criteria_is_refused() -> None:
    with pytest.raises(pa.PalaestraError, match="has no criteria"):
        evaluated().judge(policy("1: yes"), rubric={"question": "Is it open?"})
