"""`palaestra sandbox`: one command, how it ended, and an exit code that says so."""

from __future__ import annotations

import json

import pytest

from palaestra.cli.main import main

CaptureFixture = pytest.CaptureFixture[str]


def test_a_command_gives_its_output_and_explains_how_it_ended(capsys: CaptureFixture) -> None:
    assert main(["sandbox", "--kind", "unsafe", "--", "sh", "-c", "echo out; echo err >&2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "out\n"
    assert captured.err.startswith("err\nunsafe: exit with code 0 after ")


def test_a_broken_limit_is_reported_and_is_no_success(capsys: CaptureFixture) -> None:
    words = ["sandbox", "--kind", "unsafe", "--limit", "seconds=0.2", "--json", "--", "sleep", "9"]
    assert main(words) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["kind"], result["ended"], result["code"]) == ("unsafe", "seconds", None)


@pytest.mark.parametrize(
    "words",
    [
        ["--limit", "hours=1"],
        ["--limit", "seconds=-1"],
        ["--limit", "memory=much"],
        ["--mount", "/usr"],
        ["--mount", "/usr:/elsewhere"],
        ["--host", "example.org:443"],
        ["--kind", "stone"],
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    words: list[str], capsys: CaptureFixture
) -> None:
    assert main(["sandbox", "--kind", "unsafe", *words, "--", "true"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
