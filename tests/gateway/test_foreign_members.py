"""Processes register as members of a team, die, come back and flood; the run goes on and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Episode
from palaestra.gateway import registration_desk
from palaestra.gateway.registration import LIMITS, desk_opened
from palaestra.gateway.registration_desk import BURST
from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment

SCRIPT = Path(__file__).parents[2] / "recipes" / "agents" / "team_member.py"
TEAM = """
[members.author]
instructions = "Propose an action; take reviews into account."
[members.reviewer]
instructions = "Say what is wrong with the proposal."
model = "registered"
rights = ["send"]
[[stage]]
do = "propose"
who = ["author"]
[[stage]]
do = "talk"
who = ["reviewer"]
[[stage]]
do = "act"
who = ["author"]
"""


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Serve four tasks to a team, or go on; yield the server and the line that it prints first."""
    file = folder / "team.toml"
    file.write_text(TEAM)
    new = ("probe/umbrella-4", "--team", str(file), "--model", "expert", "-n", "4")
    begun = ("--resume", str(folder / "run")) if "--resumed" in more else (*new, "--run", "run")
    options = [one for one in more if one != "--resumed"]
    with subprocess.Popen(
        command("serve", *begun, "--heartbeat", "0.3", *options),
        stdout=subprocess.PIPE, text=True, env=environment(), cwd=folder,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            yield server, json.loads(server.stdout.readline())
        finally:
            server.kill()


def member(folder: Path, about: dict[str, Any], name: str, reply: str) -> subprocess.Popen[bytes]:
    """Start the script of the recipe; it notes each question in the file `name`.

    It registers by its capability, which fits the reviewer's instructions.
    """
    script = folder / f"{name}.py"
    text = SCRIPT.read_text().replace('"role": ROLE, "capability"', '"capability"')
    text = text.replace("accepts what others propose", "says what is wrong with others")
    text = text.replace(
        '    return "accept"',
        f'    with open({str(folder / name)!r}, "a") as file:\n'
        '        file.write("asked\\n")\n'
        f"    return {reply}",
    )
    script.write_text(text)
    words = [sys.executable, str(script), about["registration"], about["token"], "reviewer"]
    return subprocess.Popen(words)


def questions(folder: Path, name: str) -> int:
    """Return how many questions a member has been asked."""
    file = folder / name
    return len(file.read_text().splitlines()) if file.exists() else 0


def wait_for(condition: Any) -> None:
    ending = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ending
        time.sleep(0.01)


def episodes(folder: Path) -> list[Episode]:
    with RunFolder.read(folder / "run") as opened:
        return opened.database.episodes("eval/test")


def reviews(episode: Episode) -> list[str]:
    return [call.reply.text for call in episode.calls if call.role == "reviewer"]


def test_the_work_of_a_killed_process_is_given_to_another_one(tmp_path: Path) -> None:
    with serving(tmp_path, "--concurrency", "1") as (server, about):
        assert about["roles"] == ["reviewer"]
        frozen = member(tmp_path, about, "frozen", "time.sleep(60)")
        wait_for(lambda: questions(tmp_path, "frozen"))
        working = member(tmp_path, about, "working", '"accept"')
        frozen.send_signal(signal.SIGKILL)
        output, _ = server.communicate(timeout=30)
        assert working.wait(10) == 0 and server.returncode == 0
        frozen.wait()
    *events, result = map(json.loads, output.splitlines())
    first, second = (event["process"] for event in events if "registered" in event)
    assert [event["process"] for event in events if "gone" in event][:1] == [first] != [second]
    assert result["success"] == 1.0
    for episode in episodes(tmp_path):
        turns = sum(step.before.turn == "reviewer" for step in episode.steps)
        assert reviews(episode) == ["accept"] * turns and turns == 4
        assert not any(player.forfeited for player in episode.players.values())


@pytest.mark.slow
def test_a_resumed_run_asks_for_no_recorded_reply_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--concurrency", "1") as (server, about):
        early = member(tmp_path, about, "early", '"accept, early"')
        wait_for(lambda: questions(tmp_path, "early") >= 6)
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert early.wait(30) == 0
    with serving(tmp_path, "--resumed") as (server, about):
        late = member(tmp_path, about, "late", '"accept, late"')
        server.communicate(timeout=30)
        assert late.wait(10) == 0 and server.returncode == 0
    found = [reviews(episode) for episode in episodes(tmp_path)]
    assert all(texts == sorted(texts) and len(texts) == 4 for texts in found)  # early, then late
    flat = [text for texts in found for text in texts]
    assert flat.count("accept, late") == questions(tmp_path, "late")
    assert flat.count("accept, early") >= questions(tmp_path, "early") - 1  # the one in flight


@pytest.mark.slow
def test_a_member_without_a_process_forfeits_and_the_others_go_on(tmp_path: Path) -> None:
    with serving(tmp_path, "--patience", "0.2") as (server, _):
        server.communicate(timeout=30)
        assert server.returncode == 0
    for episode in episodes(tmp_path):
        reviewer = episode.players["reviewer"]
        assert episode.outcome.solved and reviewer.forfeited
        assert str(reviewer.outcome) == "error(absent, agent)"
        assert "no process was registered for 'reviewer'" in reviewer.outcome.detail


def test_requests_that_are_stolen_too_large_or_too_many_are_refused_and_others_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration_desk, "ran", lambda: 0.0)  # all within one instant

    async def test() -> None:
        opened = desk_opened(
            {"critic": ""}, lambda capability, texts: None,
            host="127.0.0.1", port=0, public=None, heartbeat=0.2, patience=9.0,
        )  # fmt: skip
        async with opened as desk, httpx.AsyncClient(trust_env=False) as client:
            address = f"{desk.address}/processes"
            asking = asyncio.ensure_future(desk.ask("critic", {"messages": []}))

            async def send(method: str, path: str, token: str, **body: Any) -> httpx.Response:
                headers = {"Authorization": f"Bearer {token}"}
                return await client.request(method, address + path, headers=headers, **body)

            for token in ("a", "stolen"):
                assert (await send("POST", "", token, json={})).status_code == 401
            first, second = [
                (await send("POST", "", desk.token, json={"role": "critic"})).json()
                for _ in range(2)
            ]
            for body, status in (
                ({"content": b"x" * (LIMITS.bytes + 1)}, 413),
                ({"content": b"{"}, 400),
                ({"json": {"text": "a", "score": 1}}, 400),
                ({"json": {"text": "a"}}, 409),
            ):
                found = await send("POST", f"/{first['process']}/replies/0", first["token"], **body)
                assert found.status_code == status and found.json()["error"]["message"]
            wrong = await send("GET", f"/{first['process']}/next", second["token"])
            assert wrong.status_code == 401 and "token" in wrong.json()["error"]["message"]
            beats = [
                send("POST", f"/{first['process']}/heartbeat", first["token"])
                for _ in range(int(BURST) + 100)
            ]
            refused = [one for one in await asyncio.gather(*beats) if one.status_code == 429]
            assert refused and all(one.headers["retry-after"] == "1" for one in refused)
            asked = await send("GET", f"/{second['process']}/next", second["token"])
            assert asked.json() == {"question": 0, "messages": []}
            reply = {"text": "accept"}
            await send("POST", f"/{second['process']}/replies/0", second["token"], json=reply)
            assert await asking == "accept"
            assert (await send("GET", f"/{second['process']}/next", second["token"])).content == b""
            await send("DELETE", f"/{second['process']}", second["token"])
            gone = await send("GET", f"/{second['process']}/next", second["token"])
            assert gone.status_code == 404 and "register again" in gone.text
            assert (await send("GET", "/a/b/c", desk.token)).status_code == 404

    asyncio.run(test())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["probe/umbrella-4", "--team", "majority"], "No role has the model 'registered'"),
        (["probe/umbrella-4", "--role", "a=registered"], "--role is for members of a team"),
        (["probe/umbrella-4", "--heartbeat", "1"], "--heartbeat is for members of a team"),
        (["probe/umbrella-4", "--team", "majority", "--hide-rewards"], "members see no rewards"),
        (
            ["probe/umbrella-4", "--team", "majority", "--role", "first=registered",
             "--patience", "-1"],
            "--patience of -1 is no time",
        ),
        (["probe/umbrella-4", "--team", "majority", "--role", "x=registered"], "x"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_said_before_the_run_starts(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments, "--model", "random"]) == 2
    assert reason in capsys.readouterr().err
