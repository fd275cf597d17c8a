"""`palaestra show RUN`: how the run did comes first."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.cli.main import FIRST, main
from palaestra.core.episode import Key
from palaestra.core.outcome import Outcome, Owner
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import check
from tests.store import samples

CRASH = Outcome.error("crash", Owner.ENVIRONMENT)
LOST = Outcome.error("crash", Owner.INFRASTRUCTURE)


def make(path: Path, phases: dict[str, list[Outcome]], recipe: dict[str, object]) -> None:
    with RunFolder.create(path, recipe) as run:
        for phase, outcomes in phases.items():
            for number, outcome in enumerate(outcomes):
                run.database.finish(replace(samples.episode(Key(phase, number)), outcome=outcome))


def lines(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["show", str(path)]) == 0
    return capsys.readouterr().out.splitlines()


def test_success_its_interval_and_errors_come_before_all_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = Outcome.success(), Outcome.failure()
    phases = {
        "test/base": [bad] * 8,
        "demonstrations": [good] * 3,
        "test/imitation": [good, bad, bad, bad],
        "rl/1": [good, bad, LOST],
        "rl/2": [good, CRASH, bad],
        "test/rl": [good] * 6 + [bad, CRASH, bad],
    }
    make(tmp_path / "run", phases, {"summary": "a small one", "rl": {"steps": 2}})
    output = lines(tmp_path / "run", capsys)
    assert output[:4] == [
        str(tmp_path / "run"),
        "a small one",
        "test/rl: success 75.0 % of 8 tasks, 95 % interval over tasks 40.9 to 92.9 %",
        "faults: infrastructure 1, environment 2 (these episodes have no result)",
    ]
    row = next(line.split() for line in output if line.strip().startswith("test/rl  "))
    assert row == "test/rl 75.0 % 40.9 to 92.9 % 8 9 environment 1".split()
    assert main(["show", str(tmp_path / "run"), "--json"]) == 0
    standing = json.loads(capsys.readouterr().out)["phases"]["test/rl"]
    assert standing["interval"] == [pytest.approx(0.409, abs=1e-3), pytest.approx(0.929, abs=1e-3)]
    assert standing["faults"] == {"environment": 1} and standing["tasks"] == 8


def test_what_infrastructure_broke_in_a_test_comes_with_the_command_that_runs_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "e", {"eval/test": [Outcome.success(), LOST]}, {"command": "eval"})
    make(tmp_path / "t", {"test/base": [LOST]}, {"rl": {}})
    make(tmp_path / "i", {"eval/test": [LOST]}, {"imported": {}})
    assert lines(tmp_path / "e", capsys)[3].endswith(f"palaestra eval --resume {tmp_path / 'e'}")
    training = lines(tmp_path / "t", capsys)
    assert training[2] == "test/base: no episode has a result"
    assert training[3].endswith(f"palaestra train --resume {tmp_path / 't'}")
    assert "resume" not in lines(tmp_path / "i", capsys)[3]


def test_a_run_without_a_test_reports_it_and_one_of_many_cells_has_no_one_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "new", {"rl/1": [Outcome.success()]}, {"rl": {}})
    assert lines(tmp_path / "new", capsys)[2].startswith("No episode outside of training")
    cells = {f"eval/test/{agent}": [Outcome.success()] for agent in ("direct", "react")}
    make(tmp_path / "many", cells, {"command": "eval"})
    assert lines(tmp_path / "many", capsys)[2] == "faults: none"


def test_many_environments_are_told_apart_in_a_narrow_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = "eval/test/direct/a-model-with-a-long-name-1a2b/miniwob/"
    ends = ["click-tab+click-dialog-2-observation-text", "click-tab+click-dialog-2:reverse"]
    make(tmp_path / "many", {start + end: [Outcome.success()] for end in ends}, {"command": "eval"})
    output = lines(tmp_path / "many", capsys)
    assert f"phases, without their common '{start}'" in output
    first = "".join(line.split("  ")[1].strip() for line in output if line.startswith("  "))
    assert all(end in first for end in ends)


STAGES = """
do = "imitate"
from = {speaker = "expert", demonstrations = 96}
learning_rate = 1e-3
general = {files = ["LICENSE"]}

[[stage]]
do = "repeat"
name = "improve"
rounds = 3
until = {stage = "check", patience = 1}
stages = [
  {do = "explore", tasks = 64, group = 4},
  {do = "prefer", from = "explore", loss = "dpo"},
  {do = "merge", from = ["imitate", "prefer"]},
  {do = "value", from = "explore"},
  {do = "imitate", name = "own", from = "explore", advantages = {}},
  {do = "evaluate", name = "check", split = "validation"},
]

[[stage]]
do = "reinforce"
loss_options = {unit = "rollout"}
"""


def test_each_stage_is_a_line_with_the_keys_that_were_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"[environment]\nid = 'babyai/GoToObjS4'\n[[stage]]\n{STAGES}"
    recorded = check(tomllib.loads(text)).model_dump(mode="json")
    make(tmp_path / "run", {}, recorded)
    output = lines(tmp_path / "run", capsys)
    at = output.index("stages, with the keys that differ from their defaults:")
    assert output[at + 1 : at + 10] == [
        '  imitate  from = {speaker = "expert", demonstrations = 96}, learning_rate = 0.001, '
        'general = {files = ["LICENSE"]}',
        '  improve (repeat)  rounds = 3, until = {stage = "check", patience = 1}',
        "    explore  tasks = 64, group = 4",
        '    prefer  from = "explore"',
        '    merge  from = ["imitate", "prefer"]',
        '    value  from = "explore"',
        '    own (imitate)  from = "explore", advantages = {stage = "value", beta = 10.0}',
        '    check (evaluate)  split = "validation"',
        '  reinforce  loss_options = {unit = "rollout"}',
    ]
    rows = [line.split()[0] for line in output[at + 10 :] if line.strip()]
    assert "environment.id" in rows
    assert not [key for key in rows if key.partition(".")[0] in ("stage", "imitation", "rl")]


def test_stages_of_another_version_are_shown_with_all_recorded_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = {"do": "imitate", "name": None, "from": [{"stage": "a"}], "epochs": 2, "odd": True}
    make(tmp_path / "run", {}, {"stage": [stage]})
    assert '  imitate  from = "a", epochs = 2, odd = true' in lines(tmp_path / "run", capsys)


def test_palaestra_alone_shows_the_first_three_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr().out
    assert output.strip() == FIRST
    commands = [line.split("  ")[1] for line in output.splitlines() if line.startswith("  ")]
    assert len(commands) == 3
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([*command.split()[1:2], "--help"])
        assert ended.value.code == 0
