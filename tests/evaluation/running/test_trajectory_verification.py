"""Replaying episodes: what a world did is what it does, and what it does otherwise is named."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.environments.registry import make
from palaestra.evaluation.running.trajectory_verification import Verification, verify
from palaestra.store.run_folder import RunFolder

WORLD = "probe/umbrella-4"

CLIENT = """
import json, os
from urllib.request import Request, urlopen

auth = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"]}
talk, over = [{"role": "user", "content": os.environ["PALAESTRA_TASK"]}], False
while not over:
    body = json.dumps({"model": "m", "messages": talk}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    said = json.load(urlopen(Request(url, body, auth)))["choices"][0]["message"]
    action = json.dumps({"action": said["content"]}).encode()
    step = json.load(urlopen(Request(os.environ["PALAESTRA_WORLD_URL"] + "/step", action, auth)))
    talk, over = [*talk, said, {"role": "user", "content": step["observation"]}], step["over"]
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two episodes of a program behind the gateway."""
    folder = tmp_path_factory.mktemp("replaying")
    (folder / "client.py").write_text(CLIENT)
    line = shlex.join([sys.executable, str(folder / "client.py")])
    words = ["eval", "--env", WORLD, "--agent-command", line, "--model", "expert"]
    assert main([*words, "-n", "2", "--workers", "0", "--run", str(folder / "run")]) == 0
    return folder / "run"


def episodes(run: Path) -> list[Episode]:
    with RunFolder.read(run) as opened:
        return opened.database.episodes("eval/test")


def replayed(episode: Episode) -> Verification:
    return asyncio.run(verify(episode, make))


def changed(episode: Episode, turn: int, **transition: Any) -> Episode:
    step = episode.steps[turn]
    other = replace(step, transition=replace(step.transition, **transition))
    return replace(episode, steps=(*episode.steps[:turn], other, *episode.steps[turn + 1 :]))


def test_an_episode_of_a_foreign_program_is_replayed_from_its_record(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(recorded), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["same"], [row["agent"] for row in output["episodes"]]) == (2, ["command"] * 2)
    assert [row["turns"] for row in output["episodes"]] == [4, 4]
    assert main(["replay", str(recorded), "eval/test/1.0"]) == 0
    assert "eval/test/1.0  command: success, 4 turns: the same" in capsys.readouterr().out


def test_what_the_world_does_otherwise_is_named_with_its_turn(recorded: Path) -> None:
    episode = episodes(recorded)[0]
    (reward,) = replayed(changed(episode, 1, reward=0.125)).differences
    assert (reward.turn, reward.what, reward.then) == (2, "reward", 0.125)
    seen = replace(episode.steps[2].transition.observation, text="A wall.")
    (observation,) = replayed(changed(episode, 2, observation=seen)).differences
    assert str(observation).startswith("turn 3: observation was 'A wall.' and is")
    (first,) = replayed(replace(episode, observation=seen)).differences
    assert (first.turn, str(first).partition(":")[0]) == (0, "the reset")
    (progress,) = replayed(replace(episode, progress=0.5)).differences
    assert progress.what == "progress"


def test_another_task_or_another_end_is_no_replay(recorded: Path) -> None:
    episode = episodes(recorded)[0]
    longer = replace(episode, steps=(*episode.steps, episode.steps[-1]))
    found = replayed(longer)
    assert (found.turns, found.differences[-1].what) == (4, "end")
    action = replace(episode.steps[0].action, text="do what nobody understands")
    other = replace(episode, steps=(replace(episode.steps[0], action=action), *episode.steps[1:]))
    assert not replayed(other).same
    with pytest.raises(InputError):
        replayed(replace(episode, observation=None))


def test_a_run_that_differs_is_reported_by_the_exit_code(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def harder(id: str) -> Any:
        return make(id.replace("umbrella-4", "umbrella-8"))

    monkeypatch.setattr("palaestra.environments.registry.make", harder)
    assert main(["replay", str(recorded), "-n", "1"]) == 1
    assert "0 of 1 episodes are the same" in capsys.readouterr().out
    assert main(["replay", str(recorded), "eval/test/0.0", "-n", "1"]) == 2
