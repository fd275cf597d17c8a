"""A process registers while a run goes on, is found by its capability, and gets work."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.environments.teams.protocol import facts_of
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.registration_desk import Desk
from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment

TEAM = """
[members.host]
model = "reader?right=0.0"
[members.clerk]
skills = "physics"
model = "registered"
[members.guest]
reserve = true
model = "registered"
[formation]
member = "host"
depth = 1
"""


@contextmanager
def serving(*begun: str | Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Serve a run; yield the process and the line that it prints first."""
    with subprocess.Popen(
        command("serve", *begun, "--heartbeat", "0.5", "--concurrency", "1"),
        stdout=subprocess.PIPE, text=True, env=environment(),
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            yield server, json.loads(server.stdout.readline())
        finally:
            server.kill()


class Program:
    """A process of the outside; `known` is the letter with which it answers everything."""

    def __init__(self, about: dict[str, Any], **registering: str) -> None:
        self.client = httpx.Client(trust_env=False, timeout=30)
        self.address = about["registration"]
        self.me = self._send("POST", "", about["token"], json=registering).json()
        self.asked: list[str] = []  # what it was asked for, the last message of each question

    def question(self) -> int | None:
        """Wait for a question and return its number; None: the run is over."""
        while True:
            try:
                found = self._send("GET", f"/{self.me['process']}/next", self.me["token"])
            except httpx.HTTPError:
                return None
            if found.status_code == 410:
                return None
            if found.status_code == 200:
                self.asked.append(found.json()["messages"][-1]["content"])
                return int(found.json()["question"])

    def reply(self, number: int) -> None:
        path = f"/{self.me['process']}/replies/{number}"
        self._send("POST", path, self.me["token"], json={"text": "a"})

    def work(self) -> threading.Thread:
        """Reply to all questions from now on."""

        def run() -> None:
            while (number := self.question()) is not None:
                self.reply(number)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _send(self, method: str, path: str, token: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return self.client.request(method, self.address + path, headers=headers, **more)


def replies(episode: Episode, role: str) -> list[str]:
    return [call.reply.text for call in episode.calls if call.role == role]


@pytest.mark.slow
def test_a_process_that_joins_during_a_run_is_found_and_a_resumed_run_remembers_it(
    tmp_path: Path,
) -> None:
    team, run = tmp_path / "team.toml", tmp_path / "run"
    team.write_text(TEAM)
    new = ("tests.environments.teams.skills:Skills", "--team", team, "--model", "reader")
    with serving(*new, "-n", "8", "--run", run) as (server, about):
        assert about["roles"] == ["clerk", "guest"]
        clerk = Program(about, role="clerk", capability="physics")
        number = clerk.question()  # so the host has searched once, and nobody was in the place
        guest = Program(about, capability="music and law")
        assert guest.me["role"] == "guest" and number is not None
        clerk.reply(number)
        clerk.work()
        assert guest.question() is not None  # it was found, and has work
        server.kill()
    with serving("--resume", run) as (server, about):
        clerk = Program(about, role="clerk", capability="physics")
        guest = Program(about, role="guest", capability="music and law")
        for worker in (clerk.work(), guest.work()):
            worker.join(60)
        server.communicate(timeout=30)
        assert server.returncode == 0
    with RunFolder.read(run) as opened:
        episodes = opened.database.episodes("eval/test")
    joined = [turn.get("joined", {}) for episode in episodes for turn in facts_of(episode)]
    came = joined.index({"guest": "music and law"})
    assert "(pass)" in [text for episode in episodes for text in replies(episode, "guest")]
    assert joined[came:] == [{"guest": "music and law"}] * (len(episodes) - came)
    for episode in episodes[came:]:
        registered, *answers = [
            text for text in replies(episode, "guest") if text != "(pass)"
        ]  # the first search of an episode asks who is there, those after it do not
        assert registered == "register: music and law" and set(answers) <= {"a"}
        assert not any(player.forfeited for player in episode.players.values())
    assert all(
        text.startswith("You are guest") or "Your skills: music and law." in text
        for text in guest.asked
    )
    assert guest.asked


def test_a_place_takes_one_process_that_says_what_it_can() -> None:
    desk = Desk({"critic": "Say what is wrong.", "one": "", "two": ""},
                lambda capability, texts: 0 if "wrong" in capability else None,
                1.0, 1.0, lambda what: None, places=("one", "two"))  # fmt: skip
    assert desk.register(None, "finds what is wrong").role == "critic"
    first = desk.register(None, "music")
    assert [first.role, desk.register(None, "law").role] == ["one", "two"]
    assert (desk.capability_of("one"), desk.capability_of("two/helper")) == ("music", "law")
    for role, capability, status in (("one", "art", 409), ("one", " ", 422), (None, "art", 422)):
        with pytest.raises(HTTPError) as refused:
            desk.register(role, capability)
        assert refused.value.status == status
    desk.leave(first)
    assert desk.capability_of("one") is None
    assert desk.register("one", "art").role == "one"


def test_the_words_of_the_reserve_are_those_of_groups(tmp_path: Path) -> None:
    from palaestra.environments.teams.team_file import load, parse

    assert parse("team", TEAM).places == {"guest"}
    assert parse("team", TEAM + 'places = "make"').places == set()
    (tmp_path / "inner.toml").write_text(TEAM)
    outer = f'[members.a]\nteam = "{tmp_path / "inner.toml"}"\n[members.b]\n[[stage]]\ndo = "act"\n'
    (tmp_path / "outer.toml").write_text(outer)
    assert load(str(tmp_path / "outer.toml")).places == {"a.guest"}
    with pytest.raises(InputError, match="places"):
        parse("team", TEAM + 'places = "now"')
