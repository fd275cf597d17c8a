"""What episodes and programs write neither moves the terminal nor hides from its reader."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Key
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.task import Task
from palaestra.runtime.visible_text import visible
from palaestra.store.run_folder import RunFolder
from tests.store.samples import episode

CaptureFixture = pytest.CaptureFixture[str]
BAD = "a\x1b[2Jb\x1b]0;owned\x07\u200b\U000e0069\u202e\x9b31m[/bold]"
SHOWN = "a␛[2Jb␛]0;owned␇⟨U+200B⟩⟨U+E0069⟩⟨U+202E⟩⟨U+009B⟩31m[/bold]"
OWN = re.compile(r"\x1b\[[0-9;]*m")  # colours, which are the command's own


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run in which every name and text holds what a terminal would obey."""
    made = episode(Key(f"eval/{BAD}", 0))
    step = made.steps[0]
    seen = replace(step.transition.observation, text=BAD)
    steps = (replace(step, transition=replace(step.transition, observation=seen)), *made.steps[1:])
    made = replace(
        made,
        task=Task(BAD, BAD, 1, instruction=BAD),
        agent=BAD,
        steps=steps,
        outcome=Outcome.error("crash", Owner.AGENT, BAD),
        labels={BAD: BAD},
    )
    recipe = {"summary": BAD, BAD: BAD}
    with RunFolder.create(tmp_path / "run", recipe) as run:
        run.database.finish(made)
        run.database.put("alarms/rl", [{"name": BAD, "message": BAD, "steps": 1, "last": 1}])
    return tmp_path / "run"


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize("asked", [[], ["KEY"], ["KEY", "--tokens"], ["--metrics"], ["--drift"]])
def test_show_writes_no_codes_but_its_own_colours_and_hides_nothing(
    hostile: Path,
    asked: list[str],
    coloured: bool,
    capsys: CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if coloured:
        monkeypatch.setenv("FORCE_COLOR", "1")
    words = [f"eval/{BAD}/0.0" if word == "KEY" else word for word in asked]
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["show", str(hostile), *words]) == 0
    out = capsys.readouterr().out
    plain = OWN.sub("", out)
    assert visible(plain) == plain
    assert (plain != out) == coloured or asked == ["--drift"]
    assert SHOWN in plain


def test_what_is_refused_is_reported_without_codes(hostile: Path, capsys: CaptureFixture) -> None:
    assert main(["show", str(hostile), f"eval/{BAD}/7.0"]) == 2
    captured = capsys.readouterr().err
    assert visible(captured) == captured and SHOWN in captured


def test_a_sandbox_shows_what_its_program_wrote_and_obeys_none_of_it(
    capsys: CaptureFixture,
) -> None:
    program = r"printf 'red \033[31m\r\n\340\240\200 \342\200\213 \tend\n'; printf '\007' >&2"
    words = ["sandbox", "--kind", "unsafe", "--", "sh", "-c", program]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == "red ␛[31m\n\u0800 ⟨U+200B⟩ \tend\n"
    assert captured.err.startswith("␇unsafe: exit with code 0")
    assert main([*words[:3], "--json", *words[3:]]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert exact["stdout"] == "red \x1b[31m\r\n\u0800 \u200b \tend\n"
