"""`palaestra play --web`: persons on pages, over HTTP, with a link for each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from tests.chosen import mostly_slow
from tests.core.games import Ring, Tally
from tests.viewer.browser import Watch, chromium

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("uvicorn", reason="the viewer's server is not installed")

ROOT = Path(__file__).parents[2]
GAME = f"{Tally.__module__}:Tally"
RANDOM = ["--player", "cat=direct@random"]


class Played:
    """A game that goes on in a process of its own, with the links of its persons."""

    def __init__(self, process: subprocess.Popen[str], persons: int) -> None:
        self.process = process
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(persons)]
        self.links = dict(line.split(": ", 1) for line in lines)

    def end(self) -> str:
        """Return what it prints once the game is over."""
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, err
        return out


@contextmanager
def playing(persons: int, *options: str, env: str = GAME) -> Iterator[Played]:
    command = [sys.executable, "-m", "palaestra", "play", "--web", "--env", env, *options]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield Played(process, persons)
    finally:
        process.kill()
        process.communicate()


class Browser:
    """A browser without scripts: it keeps cookies, follows waits and sends the page's forms."""

    def __init__(self, link: str) -> None:
        self.link, self.origin = link, re.sub(r"/play/.*", "", link)
        self.client = httpx.Client(follow_redirects=True, timeout=40)
        self.page = self.client.get(link).text

    def until(self, text: str) -> str:
        """Follow the page's own waits until it says something."""
        for _ in range(50):
            if text in self.words:
                return self.words
            found = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', self.page)
            assert found is not None, self.words
            self.page = self.client.get(self.origin + unescape(found[1])).text
        raise AssertionError(f"never {text}: {self.words}")

    def send(self, **fields: str) -> Any:
        """Send the page's form with these fields."""
        hidden = dict(re.findall(r'type="hidden" name="(turn|form)" value="([^"]*)"', self.page))
        answer = self.client.post(
            self.link, data={**hidden, **fields}, headers={"Origin": self.origin}
        )
        self.page = answer.text
        return answer

    @property
    def words(self) -> str:
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.page)).split())


@pytest.mark.slow
def test_two_persons_play_with_an_agent_and_send_messages() -> None:
    env = f"{GAME}?messages=all"
    with playing(2, "--player", "ann", "--player", "bob", *RANDOM, env=env) as game:
        ann, bob = Browser(game.links["ann"]), Browser(game.links["bob"])
        assert "You are ann" in ann.until("It is your turn.")
        assert "ann, round 1. Last: -" in ann.words and "Name a number: 1, 2, 3" in ann.words
        told = {"tool": "send_message", "argument to": "bob", "argument text": "<i>3</i>?"}
        ann.send(**told)
        assert "Sent to bob." in ann.until("It is your turn.")
        old = ann.page
        ann.send(action="1")
        bob.until("It is your turn.")
        bob.send(action="four")
        assert "not understood bob: 1, 2 or 3." in bob.until("It is your turn.")
        bob.send(action="2")
        shown = bob.until("[all] ann to you: <i>3</i>?")
        assert "<i>3</i>" not in bob.page and "bob, round 2" in shown
        ann.until("ann, round 2")
        ann.page = old  # a form that was sent already
        assert ann.send(action="2").status_code == 400 and "That turn is over" in ann.words
        for _ in range(2):
            for person in (ann, bob):
                person.until("It is your turn.")
                person.send(action="3")
        for person in (ann, bob):
            assert "ann: return +" in person.until("The game is over.")
        printed = game.end()
    assert "bob: return +" in printed and "4 action(s)" in printed


def test_a_link_belongs_to_the_browser_that_opens_it_first() -> None:
    with playing(1, "--player", "bob", "--player", "ann=direct@random", *RANDOM) as game:
        bob = Browser(game.links["bob"])
        bob.until("It is your turn.")
        thief = Browser(bob.link)
        assert "Another browser plays for bob" in thief.page
        assert thief.send(action="1").status_code == 403
        wrong = httpx.get(f"{bob.origin}/play/guessed")
        assert wrong.status_code == 403 and "No player has this link" in wrong.text
        hidden = {"turn": "1", "form": "guessed", "action": "1"}
        forged = bob.client.post(bob.link, data=hidden, headers={"Origin": bob.origin})
        assert forged.status_code == 403 and "not of your page" in forged.text
        foreign = bob.client.post(bob.link, data=hidden, headers={"Origin": "http://evil.example"})
        assert foreign.status_code == 403 and "only from the pages of this site" in foreign.text
        named = httpx.get(bob.link, headers={"Host": "evil.example"})
        assert named.status_code == 403 and "is not allowed" in named.text
        assert bob.send(action=" ").status_code == 400 and "The action is empty" in bob.words
        assert bob.send(tool="cheat").status_code == 400 and "no tool 'cheat'" in bob.words
        bob.send(leave="1")
        assert "bob: return -5, 0 action(s), forfeited (gave up)" in bob.until("The game is over.")


@pytest.mark.slow
def test_a_person_who_does_not_answer_forfeits_and_the_others_play_on() -> None:
    ring = f"{Ring.__module__}:Ring"
    options = ("--player", "ann", "--player", "bob", *RANDOM, "--player-seconds", "3")
    with playing(2, *options, env=ring) as game:
        ann = Browser(game.links["ann"])  # bob never opens his
        for _ in range(3):
            ann.until("It is your turn.")
            ann.send(action="1")
        ended = ann.until("The game is over.")
        assert "bob: return -5, 0 action(s), forfeited (out of seconds)" in ended
        assert "ann: return" in ended and "bob: return -5" in game.end()


def test_a_person_is_a_member_of_a_team() -> None:
    options = ("--player", "reviewer", "--player", "author=direct@random")
    with playing(1, *options, env="questions/things-2?team=review") as game:
        reviewer = Browser(game.links["reviewer"])
        seen = reviewer.until("It is your turn.")
        assert "author proposes:" in seen and "Say something to your team." in seen
        reviewer.send(action="accept")
        reviewer.until("The game is over.")
        assert "author: return" in game.end()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--player-seconds", "5"], "--player-seconds needs --web"),
        (["--port", "0"], "--port needs --web or --own-browser"),
        (["--own-browser", "--web"], "--own-browser is for one person alone"),
        (["--own-browser"], "have no page of their own; leave out --own-browser"),
        (["--run", "runs/people"], "--run needs --own-browser"),
        (["--web", "--player-seconds", "0"], "--player-seconds 0 is no time to decide"),
        (["--web", "--port", "70000"], "There is no port 70000"),
        (["--web", "--player", "bob"], "Nobody plays for ann"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(
    options: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", "--env", GAME, *options]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("width", mostly_slow([1280, 420], 1280))
def test_the_page_plays_in_a_browser(width: int) -> None:
    options = ("--player", "ann", "--player", "bob=direct@random", *RANDOM)
    with playing(1, *options, env=f"{GAME}?messages=all") as game, chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(10_000)
        watch = Watch(page, re.sub(r"/play/.*", "", game.links["ann"]))
        page.goto(game.links["ann"])
        page.fill("input[name='argument to']", "all")
        page.fill("input[name='argument text']", "hello")
        page.click("button:text-is('Call')")
        page.wait_for_selector("li.saw:has-text('Sent to bob, cat.')")
        page.click("button:text-is('2')")
        page.wait_for_selector("li.saw:has-text('ann, round 2')")
        page.fill("#action", "3")
        page.click("button:text-is('Send')")
        page.wait_for_selector("li.saw:has-text('ann, round 3')")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("button:text-is('Leave the game')")
        page.wait_for_selector("text=ann: return -5, 3 action(s), forfeited (gave up)")
        assert watch.complaints == []
        page.close()
