"""Programs as agents: evaluated and trained as those of this process, and ended with them."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.errors import ContextTooLong, InputError, RecipeError
from palaestra.core.message import ToolCall, system, user
from palaestra.core.model import Model
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from palaestra.core.tool import Tool
from palaestra.experiment.check import check_recipe
from palaestra.experiment.recipe import load
from palaestra.models.scripted import ScriptedModel
from palaestra.rollout.gateway import hermes
from palaestra.rollout.gateway.agent import CommandAgent, name_of
from palaestra.store.run import RunFolder
from tests.core.small import KEY, TASK, Stairs
from tests.experiment.runs import command, environment
from tests.rollout.gateway.test_refusals import Broken

RECIPES = Path(__file__).parents[3] / "recipes" / "agents"
PLAIN = f"{sys.executable} {RECIPES / 'with_standard_library.py'}"
SHELL = f"sh {RECIPES / 'with_shell.sh'}"
WORLD = "probe/umbrella-4"
FRAMEWORKS = {
    "agents": "with_openai_agents.py",
    "langgraph": "with_langgraph.py",
    "pydantic_ai": "with_pydantic_ai.py",
    "smolagents": "with_smolagents.py",
}


def lived(line: str, model: Model | None = None, **options: Any) -> Episode:
    agent = CommandAgent(line=line, **options)
    session = Session(KEY, TASK, Stairs(), agent, {"agent": model or ScriptedModel(["up"] * 9)})
    return asyncio.run(session.live())


def evaluated(run: Path, *arguments: str, count: int = 2) -> list[Episode]:
    words = ["eval", "--env", WORLD, "-n", str(count), "--run", str(run), "--workers", "0"]
    assert main([*words, *arguments]) == 0
    with RunFolder.read(run) as opened:
        return opened.database.episodes("eval/test")


def essence(episode: Episode) -> Any:
    calls = [(call.parent, call.messages, call.reply) for call in episode.calls]
    steps = [(step.call, step.action, step.transition) for step in episode.steps]
    return (episode.key, episode.task, episode.outcome, calls, steps)


def test_a_program_that_does_what_direct_does_leaves_the_same_episodes(tmp_path: Path) -> None:
    ours = evaluated(tmp_path / "a", "--model", "random", "--agent", "direct")
    theirs = evaluated(tmp_path / "b", "--model", "random", "--agent-command", PLAIN)
    assert [*map(essence, theirs)] == [*map(essence, ours)]
    assert {episode.agent for episode in theirs} == {"command"}


def test_a_shell_script_is_an_agent(tmp_path: Path) -> None:
    (episode,) = evaluated(
        tmp_path / "a", "--model", "expert", "--agent-command", SHELL, "-n", "1", count=1
    )
    assert episode.outcome.solved
    assert [call.parent for call in episode.calls] == [None, 0, 1, 2]


def test_a_program_that_crashes_fails_as_the_agent_and_its_last_words_are_kept() -> None:
    outcome = lived("sh -c 'echo woe >&2; exit 3'").outcome
    assert (outcome.kind, outcome.owner) == ("crash", Owner.AGENT)
    assert outcome.detail == "exit code 3: woe"


def test_a_program_that_crashes_because_its_conversation_is_too_long_is_cut_off() -> None:
    assert str(lived(PLAIN, Broken(ContextTooLong("long"))).outcome) == "truncated(context)"


def test_a_program_that_ends_early_gives_up() -> None:
    assert str(lived("true").outcome) == "failure"


def test_a_program_without_an_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"trap '' TERM; setsid sleep 60 & echo $! > {note}; sleep 60"
    started = time.monotonic()
    outcome = lived(f"sh -c {shlex.quote(script)}", seconds=0.5).outcome
    assert (outcome.kind, outcome.owner) == ("hang", Owner.AGENT)
    assert time.monotonic() - started < 20
    pid = int(note.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_command_that_cannot_be_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line in ("no-such-program-here x", "'open", " "):
        with pytest.raises(InputError):
            make_agent(name_of(line))
    arguments = ["eval", "--env", WORLD, "--model", "random", "--agent-command", "no-such-program"]
    assert main(arguments) == 2
    assert "no-such-program" in capsys.readouterr().err


def test_any_command_can_stand_in_the_name_of_an_agent() -> None:
    line = "sh -c 'a=1 && echo 100%25 ?x=y;z ü'"
    agent = make_agent(name_of(line))
    assert isinstance(agent, CommandAgent)
    assert agent._words == shlex.split(line)


def test_an_expert_calls_a_tool_where_the_program_told_of_one() -> None:
    agent = CommandAgent(line="true")
    tool = Tool("mcp_act", "", {"type": "object", "properties": {}})
    told = [system("Be.\n\n" + hermes.told([tool])), user("start")]
    assert hermes.parsed(agent.answer(told, [Action("up")])) == (
        "",
        [ToolCall("mcp_act", {"action": "up"})],
    )
    assert agent.answer([user("start")], [Action("up")]) == "up"


def test_recipes_refuse_what_a_program_cannot_keep() -> None:
    with pytest.raises(RecipeError, match=r"agent\.name has no effect"):
        load("quick", ["agent.command=sh a.sh", "agent.name=react"])
    with pytest.raises(RecipeError, match="deterministic"):
        check_recipe(load("quick", ["agent.command=sh a.sh", "deterministic=true"]))


def test_serve_prints_where_its_sessions_are_and_ends_cleanly(tmp_path: Path) -> None:
    run = tmp_path / "a"
    words = command("serve", WORLD, "--model", "random", "-n", "2", "--run", run)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stdout is not None
        sessions = [json.loads(server.stdout.readline()) for _ in range(2)]
        first = sessions[0]
        headers = {"Authorization": f"Bearer {first['palaestra_token']}"}
        with httpx.Client(headers=headers, trust_env=False) as client:
            view: Any = {"over": False}
            while not view["over"]:
                view = client.post(
                    f"{first['palaestra_world_url']}/step", json={"action": "take"}
                ).json()
            assert client.get(sessions[1]["palaestra_world_url"]).status_code == 403
        time.sleep(0.2)
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
    with RunFolder.read(run) as opened:
        (episode,) = opened.database.episodes("eval/test")
        assert len(episode.steps) == 4


@pytest.mark.slow
def test_a_program_is_trained_by_the_recipe_of_any_agent(tmp_path: Path) -> None:
    run = tmp_path / "a"
    less = ["imitation.epochs=4", "rl.steps=2", "evaluation.tasks=2", f"agent.command={PLAIN}"]
    settings = [word for setting in less for word in ("--set", setting)]
    assert main(["train", str(RECIPES / "tiny.toml"), "--run", str(run), *settings]) == 0
    with RunFolder.read(run) as opened:
        practised = opened.database.episodes("rl/2")
        assert practised and all(episode.agent == "command" for episode in practised)
        assert all(call.completion and call.logprobs for e in practised for call in e.calls)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "script"), FRAMEWORKS.items())
def test_frameworks_act_unmodified(package: str, script: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason="in an environment of its own; see docs/gateway.md")
    line = f"{sys.executable} {RECIPES / script}"
    episodes = evaluated(tmp_path / "a", "--model", "expert", "--agent-command", line, count=2)
    assert all(episode.outcome.solved and episode.calls for episode in episodes)
