"""Worlds that are Java virtual machines, agents that are commands: fewer at once by default."""

from __future__ import annotations

import asyncio
import io
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.api.train_run import with_usual_concurrency
from palaestra.cli.main import main
from palaestra.core.agent import Agent
from palaestra.core.environment import Observation
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.task import Task
from palaestra.environments.families.probe.environment import Probe
from palaestra.evaluation.running.evaluation_run import evaluate
from palaestra.evaluation.running.matrix import MatrixRequest, plan
from palaestra.evaluation.running.spending_budget import SpendingBudget
from palaestra.evaluation.running.suite import Entry
from palaestra.gateway.program_agents import name_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.runtime import concurrency as shared
from palaestra.runtime.concurrency import note, usual
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import check

LIGHT = "probe/umbrella-4"
HEAVY = f"{__name__}:Heavy/umbrella-4"


class Heavy(Probe, needs=("java",)):
    """A probe that declares a need for Java and counts its open instances."""

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
    monkeypatch.setattr(shared, "cores", lambda: 1)
    Heavy.now = Heavy.peak = 0


def progress_of(folder: Path, concurrency: Mapping[str, int], tasks: int = 14) -> str:
    """Evaluate that many episodes with each of two seeds; return the progress messages."""

    def load(name: str, agent: Agent) -> Model:
        return Slow(lambda _: "nothing")

    entries = [Entry(environment=HEAVY, tasks=tasks)]
    made, _ = plan(
        MatrixRequest(entries=entries, agents=["direct"], models=["random"], seeds=[1, 2])
    )
    output = io.StringIO()
    with RunFolder.create(folder / "run", {}) as run:
        work = evaluate(
            made,
            run,
            Reporter(Console(file=output)),
            load=load,
            concurrency=concurrency,
            budget=SpendingBudget(),
            on_cell=lambda cell, episodes: None,
            workers=0,
        )
        asyncio.run(work)
    return output.getvalue()


def test_by_default_as_many_run_at_once_as_start_in_good_time(
    tmp_path: Path,
) -> None:
    assert "virtual machine" not in progress_of(tmp_path, {})
    assert Heavy.peak == 8


def test_who_asks_for_more_gets_them_and_one_note_on_what_is_quicker(tmp_path: Path) -> None:
    output = progress_of(tmp_path, {"": 12})
    assert Heavy.peak == 12
    assert output.count("Java virtual machine for each of 12 episodes at once") == 1
    assert output.count("--concurrency 8 is likely quicker") == 1


def test_a_number_that_so_few_episodes_never_reach_is_no_trouble(tmp_path: Path) -> None:
    assert "virtual machine" not in progress_of(tmp_path, {"": 64}, tasks=8)


def test_worlds_within_this_program_are_as_many_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usual(LIGHT) == 64 and note(LIGHT, 10_000, "") is None
    monkeypatch.setattr(shared, "cores", lambda: 32)
    assert usual(HEAVY) == 64 and note(HEAVY, 256, "") is None


def test_a_recipe_that_does_not_set_a_number_is_fitted_and_one_that_does_is_kept() -> None:
    silent = check({"environment": {"id": HEAVY}})
    assert with_usual_concurrency(silent).concurrency == 8
    assert with_usual_concurrency(check(silent.model_dump(mode="json"))).concurrency == 64
    assert with_usual_concurrency(check({"environment": {"id": LIGHT}})).concurrency == 64


def test_commands_are_a_few_a_core_and_who_asks_for_more_gets_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = name_of("true")
    assert usual(LIGHT, command) == 4 and usual(LIGHT, "direct") == 64
    monkeypatch.setattr(shared, "cores", lambda: 2)
    assert usual(LIGHT, command) == usual(HEAVY, command) == 8
    assert note(LIGHT, 8, "", command) is None
    output = note(LIGHT, 64, "--concurrency ", command)
    assert output is not None and "command" in output and "--concurrency 8 " in output
    commanded = check({"environment": {"id": LIGHT}, "agent": {"command": "true"}})
    assert with_usual_concurrency(commanded).concurrency == 8


def test_as_many_commands_run_at_once_as_are_reported_and_no_more_by_default(
    tmp_path: Path,
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    script = "touch $0/$$; ls $0 | wc -l >> $0.log; sleep .3; rm $0/$$"
    line = f"sh -c {shlex.quote(script)} {marks}"
    words = ["eval", "--env", LIGHT, "-n", "9", "--workers", "0", "--model", "random"]
    assert main([*words, "--agent-command", line, "--run", str(tmp_path / "a")]) in (0, 1)
    peak = max(map(int, (tmp_path / "marks.log").read_text().split()))
    assert peak <= 4
