"""Programs as agents: evaluated and trained like in-process agents, and killed with them."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.errors import ContextTooLong, InfrastructureFault, InputError, RecipeError
from palaestra.core.message import ToolCall, system, user
from palaestra.core.model import Generation, Model, Prompt, Sampling
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from palaestra.core.tool import Tool
from palaestra.evaluation.running.evaluation_plan import DOCUMENT, from_json
from palaestra.gateway import hermes_tags
from palaestra.gateway.program_agents import CommandAgent, name_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from tests.core.small import KEY, TASK, Stairs
from tests.gateway.test_refusals import START, Broken
from tests.gateway.visits import visit
from tests.training.runs import command, environment

RECIPES = Path(__file__).parents[2] / "recipes" / "agents"
PLAIN = f"{sys.executable} {RECIPES / 'with_standard_library.py'}"
SHELL = f"sh {RECIPES / 'with_shell.sh'}"
WORLD = "probe/umbrella-4"
FRAMEWORKS = {
    "agents": "with_openai_agents.py",
    "langgraph": "with_langgraph.py",
    "pydantic_ai": "with_pydantic_ai.py",
    "smolagents": "with_smolagents.py",
}


def roll_out(line: str, model: Model | None = None, **options: Any) -> Episode:
    agent = CommandAgent(line=line, **options)
    session = Session(KEY, TASK, Stairs(), agent, {"agent": model or ScriptedModel(["up"] * 9)})
    return asyncio.run(session.run())


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


def test_a_crash_is_the_agents_error_and_the_end_of_its_output_is_kept() -> None:
    outcome = roll_out("sh -c 'echo woe >&2; exit 3'").outcome
    assert (outcome.kind, outcome.owner) == ("crash", Owner.AGENT)
    assert outcome.detail == "exit code 3: woe"


def test_a_program_that_crashes_because_its_conversation_is_too_long_is_cut_off() -> None:
    assert str(roll_out(PLAIN, Broken(ContextTooLong("long"))).outcome) == "truncated(context)"


def test_a_program_that_ends_early_gives_up() -> None:
    assert str(roll_out("true").outcome) == "failure"


def test_a_program_without_an_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"trap '' TERM; setsid sleep 60 & echo $! > {note}; sleep 60"
    started = time.monotonic()
    outcome = roll_out(f"sh -c {shlex.quote(script)}", seconds=0.5).outcome
    assert (outcome.kind, outcome.owner) == ("hang", Owner.AGENT)
    assert time.monotonic() - started < 20
    pid = int(note.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("started", [1, 4])
def test_programs_end_with_a_palaestra_that_is_killed(tmp_path: Path, started: int) -> None:
    note = tmp_path / "pids"
    daemon = f"(setsid sh -c 'echo $$ >> {note}; exec sleep 300' &);"  # no descendant any more
    line = f"sh -c {shlex.quote(f'echo $$ >> {note}; {daemon} sleep 300')}"
    words = command("eval", "--env", WORLD, "--model", "random", "-n", "2", "--workers", "0")
    run = ["--run", str(tmp_path / "a"), "--agent-command", line]

    def noted() -> list[int]:
        return list(map(int, note.read_text().split())) if note.exists() else []

    with subprocess.Popen([*words, *run], env=environment()) as evaluation:
        until = time.monotonic() + 60
        while len(noted()) < started and time.monotonic() < until:
            time.sleep(0.01)
        assert len(noted()) >= started and all(map(alive, noted()))
        evaluation.kill()
    until = time.monotonic() + 60
    while (left := [pid for pid in noted() if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_sees_its_rewards_unless_they_are_hidden(tmp_path: Path) -> None:
    script = tmp_path / "curious.py"
    script.write_text(CURIOUS)
    for options in ({}, {"rewards": False}):
        agent = make_agent(name_of(f"{sys.executable} {script} {tmp_path}/told", **options))
        session = Session(KEY, TASK, Stairs(1), agent, {"agent": ScriptedModel(["up"])})
        episode = asyncio.run(session.run())
        assert episode.outcome.solved and episode.steps[0].transition.reward == 1.0
        shown = json.loads((tmp_path / "told").read_text())
        assert shown["over"] is True
        assert ("reward" in shown, "outcome" in shown) == ((not options,) * 2)
    recipe = load("quick", ["agent.command=sh a.sh", "agent.rewards=false"])
    assert recipe.agent.chosen == "command?line=sh a.sh&rewards=false"
    with pytest.raises(RecipeError, match=r"agent\.rewards"):
        load("quick", ["agent.rewards=false"])


CURIOUS = """
import os, sys
from urllib.request import Request, urlopen

auth = {"Authorization": "Bearer " + os.environ["PALAESTRA_TOKEN"]}
url = os.environ["PALAESTRA_WORLD_URL"] + "/step"
open(sys.argv[1], "wb").write(urlopen(Request(url, b'{"action": "up"}', auth)).read())
"""


def test_a_program_does_not_see_the_models_address() -> None:
    address = "http://127.0.0.1:9/v1"
    name = f"openai:secret-host@{address}"

    class Served(ScriptedModel):
        async def generate(self, prompt: Prompt) -> Generation:
            if len(prompt.messages) == 1:
                return await super().generate(prompt)
            if len(prompt.messages) == 2:
                raise ContextTooLong(f"does not fit the context of {name}: {address} says so")
            raise InfrastructureFault("model", f"{name}: cannot be reached")

    async def run() -> None:
        async with visit(Served(lambda _: "up", name=name)) as visited:
            output = [(await visited.client.get("/v1/models")).text]
            for path in ("/v1/chat/completions", "/v1/responses", "/anthropic/v1/messages"):
                body = {"model": "m", "max_tokens": 9, "messages": START, "input": START}
                output.append((await visited.post(path, body)).text)
                output.append((await visited.post(path, {**body, "stream": True})).text)
            output += [(await visited.chat(START * 2)).text, (await visited.chat(START * 3)).text]
            assert "context" in output[-2] and "reached" in output[-1]
            for text in output:
                assert "127.0.0.1" not in text and "openai:secret-host" in text

    asyncio.run(run())


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
    assert agent._argv == shlex.split(line)


def test_an_expert_calls_a_tool_where_the_program_offers_one() -> None:
    agent = CommandAgent(line="true")
    tool = Tool("mcp_act", "", {"type": "object", "properties": {}})
    asked = Prompt([user("start")], None, Sampling(), 0)
    in_words = system("Be.\n\n" + hermes_tags.instructions([tool]))
    for prompt in (
        replace(asked, messages=[in_words, user("start")]),
        replace(asked, tools=(tool,)),
    ):
        assert hermes_tags.parsed(agent.demonstrate(prompt, [Action("up")])) == (
            "",
            [ToolCall("mcp_act", {"action": "up"})],
        )
    assert agent.demonstrate(asked, [Action("up")]) == "up"


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


def test_serve_resumes_a_run_and_prints_the_given_address(tmp_path: Path) -> None:
    run = tmp_path / "a"
    public = "https://example.org:8443/x"
    options = ["--seed", "7", "--concurrency", "1", "--public-url", public, "--hide-rewards"]
    words = command("serve", WORLD, "--model", "random", "-n", "2", "--run", run, *options)
    own = {"stdout": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen(words, **own) as server:
        first = json.loads(server.stdout.readline())
        assert first["openai_base_url"].startswith(f"{public}/sessions/{first['session']}/")
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
    for wrong in (["--seed", "3"], ["--port", "9"]):
        assert main(["serve", "--resume", str(run), *wrong]) == 2
    with subprocess.Popen(command("serve", "--resume", run), **own) as server:
        again = [json.loads(server.stdout.readline()) for _ in range(2)]  # 64 at once by default
        assert {one["episode"] for one in again} >= {first["episode"]}
        server.send_signal(signal.SIGINT)
        server.wait(30)
    with RunFolder.read(run) as opened:
        (cell,) = from_json(opened.database.get(DOCUMENT), run).cells
        assert cell.seed == 7 and "rewards=false" in cell.agent


def test_serve_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        ["--model", "random"],
        [WORLD],
        [WORLD, "--model", "random", "--public-url", "x"],
    ):
        assert main(["serve", *wrong]) == 2
        assert "Traceback" not in capsys.readouterr().err


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
