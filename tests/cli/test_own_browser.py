"""`palaestra play --own-browser`: a person does a task on its page, and the play is an episode."""

from __future__ import annotations

import io
import json
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from palaestra.browser.sites import Request, Response
from palaestra.cli.main import main
from palaestra.cli.own_browser import served
from palaestra.core.episode import Key
from palaestra.store.run_folder import RunFolder
from tests.browser.needed import browser_missing


def sent(address: str, value: Any) -> Any:
    with urllib.request.urlopen(address, data=json.dumps(value).encode(), timeout=5) as answer:
        return json.load(answer)


class Person(io.StringIO):
    """Reads what the command says, does something on the page, and types an answer."""

    def __init__(self, said: Callable[[], str], do: Callable[[str], str]) -> None:
        super().__init__()
        self._said, self._do = said, do

    def readline(self, size: int | None = -1, /) -> str:
        found = re.search(r"The page: (http://127\.0\.0\.1:\d+/)", self._said())
        assert found is not None
        return self._do(found[1])


def read_the_clock(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as page:
        assert b"the time that the clock shows" in page.read()
    shown = sent(f"{address}shown", None)
    said = sent(f"{address}check", f"{shown['hour']}:{shown['minute']:02}")["said"]
    return f"{said.removeprefix('Completion code: ')}\n"


@pytest.mark.skipif(browser_missing() is not None, reason=str(browser_missing()))
def test_plays_of_a_person_are_episodes_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "people"
    command = ["play", "--env", "challenges/clock", "--own-browser", "--split", "test"]
    command += ["--seed", "4", "--run", str(run)]
    monkeypatch.setattr("palaestra.cli.own_browser.desktop", lambda: False)
    for do in (lambda address: "GUESSED\n", read_the_clock):
        monkeypatch.setattr(sys, "stdin", Person(lambda: capsys.readouterr().out, do))
        assert main(command) == 0
        assert f"in {run}" in capsys.readouterr().out
    with RunFolder.open(run) as opened:
        keys = [Key("play/test/challenges/clock", 4, member) for member in range(2)]
        plays = [opened.database.episode(key) for key in keys]
    assert [str(play.outcome) for play in plays] == ["failure", "success"]
    assert {play.agent for play in plays} == {"person"} and plays[0].task.seed == 14
    assert plays[1].task.parameters["category"] == "cognition"
    assert [play.reward for play in plays] == [0.0, 1.0]


def test_a_run_of_something_else_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if why := browser_missing():
        pytest.skip(why)
    RunFolder.create(tmp_path / "other", {"command": "eval"}).close()
    command = ["play", "--env", "challenges/clock", "--own-browser", "--run"]
    assert main([*command, str(tmp_path / "other")]) == 2
    assert "is no run of earlier plays" in capsys.readouterr().err


def test_only_pages_of_this_address_are_answered() -> None:
    def site(request: Request) -> Response:
        return Response(f"{request.method} {request.path} {request.body.decode()}".encode())

    with served(site, 0) as address:
        with urllib.request.urlopen(f"{address}a?b", data=b"body", timeout=5) as answer:
            assert answer.read() == b"POST /a body"
        asked = urllib.request.Request(address, headers={"Host": "elsewhere.example"})
        with pytest.raises(HTTPError, match="400"):
            urllib.request.urlopen(asked, timeout=5)
