"""Worlds that are Java virtual machines, agents that are commands: fewer at once by default."""

from __future__ import annotations

import asyncio
import io
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.cli.main import main
from palaestra.core.agent import Agent
from palaestra.core.environment import Observation
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.task import Task
from palaestra.environments.text.probe import Probe
from palaestra.evaluation.suite import Entry
from palaestra.experiment import crowd
from palaestra.experiment.evaluating import evaluate
from palaestra.experiment.limits import Allowance
from palaestra.experiment.matrix import Asked, plan
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import check
from palaestra.models.scripted import ScriptedModel
from palaestra.rollout.gateway.agent import name_of
from palaestra.store.run import RunFolder

LIGHT = "probe/umbrella-4"
HEAVY = f"{__name__}:Heavy/umbrella-4"


class Heavy(Probe):
    """A probe that is said to need Java; it counts how many of it are open at once."""

    programs = ("java",)
    now = peak = 0

    def reset(self, task: Task) -> Observation:
        if not vars(self).get("counted"):
            self.counted = True
            Heavy.now += 1
            Heavy.peak = max(Heavy.now, Heavy.peak)
        return super().reset(task)

    def close(self) -> None:
        Heavy.now -= vars(self).pop("counted", False)
        super().close()


class Slow(ScriptedModel):
    """Has all sessions begin before any of them ends."""

    async def generate(self, prompt: Prompt) -> Generation:
        await asyncio.sleep(0.02)
        return await super().generate(prompt)


@pytest.fixture(autouse=True)
def one_core_with_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(java.parent), prepend=":")
    monkeypatch.setattr(crowd, "cores", lambda: 1)
    Heavy.now = Heavy.peak = 0


def lived(folder: Path, concurrency: Mapping[str, int], tasks: int = 14) -> str:
    """What is said while so many episodes with each of two seeds are evaluated."""

    def load(name: str, agent: Agent) -> Model:
        return Slow(lambda _: "nothing")

    entries = [Entry(environment=HEAVY, tasks=tasks)]
    made, _ = plan(Asked(entries=entries, agents=["direct"], models=["random"], seeds=[1, 2]))
    said = io.StringIO()
    with RunFolder.create(folder / "run", {}) as run:
        work = evaluate(
            made,
            run,
            Reporter(Console(file=said)),
            load=load,
            concurrency=concurrency,
            allowance=Allowance(),
            told=lambda cell, episodes: None,
            workers=0,
        )
        asyncio.run(work)
    return said.getvalue()


def test_where_nobody_says_how_many_as_many_live_at_once_as_start_in_good_time(
    tmp_path: Path,
) -> None:
    assert "virtual machine" not in lived(tmp_path, {})
    assert Heavy.peak == 8


def test_who_asks_for_more_gets_them_and_is_told_once_what_is_quicker(tmp_path: Path) -> None:
    said = lived(tmp_path, {"": 12})
    assert Heavy.peak == 12
    assert said.count("Java virtual machine for each of 12 episodes at once") == 1
    assert said.count("--concurrency 8 is likely quicker") == 1


def test_a_number_that_so_few_episodes_never_reach_is_no_trouble(tmp_path: Path) -> None:
    assert "virtual machine" not in lived(tmp_path, {"": 64}, tasks=8)


def test_worlds_within_this_program_are_as_many_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert crowd.usual(LIGHT) == 64 and crowd.note(LIGHT, 10_000, "") is None
    monkeypatch.setattr(crowd, "cores", lambda: 32)
    assert crowd.usual(HEAVY) == 64 and crowd.note(HEAVY, 256, "") is None


def test_a_recipe_that_does_not_say_how_many_is_fitted_and_one_that_does_is_kept() -> None:
    silent = check({"environment": {"id": HEAVY}})
    assert crowd.fitted(silent).concurrency == 8
    assert crowd.fitted(check(silent.model_dump(mode="json"))).concurrency == 64
    assert crowd.fitted(check({"environment": {"id": LIGHT}})).concurrency == 64


def test_commands_are_a_few_a_core_and_who_asks_for_more_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = name_of("true")
    assert crowd.usual(LIGHT, command) == 4 and crowd.usual(LIGHT, "direct") == 64
    monkeypatch.setattr(crowd, "cores", lambda: 2)
    assert crowd.usual(LIGHT, command) == crowd.usual(HEAVY, command) == 8
    assert crowd.note(LIGHT, 8, "", command) is None
    said = crowd.note(LIGHT, 64, "--concurrency ", command)
    assert said is not None and "command" in said and "--concurrency 8 " in said
    told = check({"environment": {"id": LIGHT}, "agent": {"command": "true"}})
    assert crowd.fitted(told).concurrency == 8


def test_as_many_commands_run_at_once_as_are_said_and_no_more_by_default(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    script = "touch $0/$$; ls $0 | wc -l >> $0.log; sleep .3; rm $0/$$"
    line = f"sh -c {shlex.quote(script)} {marks}"
    words = ["eval", "--env", LIGHT, "-n", "9", "--workers", "0", "--model", "random"]
    assert main([*words, "--agent-command", line, "--run", str(tmp_path / "a")]) in (0, 1)
    peak = max(map(int, (tmp_path / "marks.log").read_text().split()))
    assert peak <= 4
