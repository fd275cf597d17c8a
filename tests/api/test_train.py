"""`pa.train`, `pa.Run` and `pa.load`: a whole small run, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import palaestra as pa
from palaestra.cli.main import main
from tests.api.worlds import Careful, Door

SMALL: dict[str, Any] = {
    "concurrency": 8,
    "environment": {"id": "babyai/GoToObjS4", "transfer": None, "workers": 0},
    "model": {"context": 512, "tiny": {"layers": 2, "width": 64}},
    "imitation": {"demonstrations": 8, "epochs": 1},
    "evaluation": {"tasks": 4},
    "progress": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pa.Run:
    folder = tmp_path_factory.mktemp("runs") / "small"
    return pa.train("quick", seed=2, rl={"steps": 2, "tasks": 2, "group": 2}, run=folder, **SMALL)


def test_a_run_has_its_recipe_metrics_report_and_policy(run: pa.Run) -> None:
    recipe = run.recipe
    assert (recipe["seed"], recipe["rl"]["steps"], recipe["rl"]["group"]) == (2, 2, 2)
    assert recipe["environment"]["transfer"] is None  # None unset what the recipe names
    assert recipe["rl"]["learning_rate"] == 5e-4  # the rest is as the recipe `quick` has it
    assert [step["step"] for step in run.metrics] == [1, 2]
    assert set(run.report.success) == {"base", "imitation", "rl"}
    assert (run.final / "model.safetensors").is_file()
    assert "Success on 4 held-out tasks" in str(run)
    assert run.phases == [
        "test/base",
        "demonstrations",
        "test/imitation",
        "rl/1",
        "rl/2",
        "test/rl",
    ]
    assert len(run.episodes("rl/2")) == 4


def test_a_finished_run_opens_by_its_folder_or_its_name_and_resumes_to_the_same(
    run: pa.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_RUNS", str(run.path.parent))
    assert pa.Run("small").path == run.path
    before = (run.final / "model.safetensors").read_bytes()
    again = pa.Run(run.path).resume(progress=False)
    assert (again.final / "model.safetensors").read_bytes() == before
    assert again.metrics == run.metrics


def test_the_trained_policy_replies_and_acts(run: pa.Run) -> None:
    policy = pa.load(run.final)
    answer = policy.reply("Where to?", max_tokens=4, temperature=1.0, seed=3)
    assert answer == policy.reply([pa.user("Where to?")], max_tokens=4, temperature=1.0, seed=3)
    with pytest.raises(pa.PalaestraError, match=r"not \{'role'.*palaestra\.user"):
        policy.reply([{"role": "user", "content": "Where to?"}])  # type: ignore[list-item]

    async def cell() -> str:
        return policy.reply("Where to?", max_tokens=4, temperature=1.0, seed=3)

    assert asyncio.run(cell()) == answer
    asked = {"n": 2, "progress": False, "temperature": 0.0}
    loaded = pa.evaluate("babyai/GoToObjS4", model=policy, **asked)
    named = pa.evaluate("babyai/GoToObjS4", model=str(run.path), **asked)
    replies = [[[call.completion for call in e.calls] for e in r.episodes] for r in (loaded, named)]
    assert replies[0] == replies[1] and replies[0][0]
    assert pa.Run(loaded.folder).resume(progress=False).results.complete


def test_it_is_the_run_that_the_command_line_makes(run: pa.Run, tmp_path: Path) -> None:
    overrides = [
        "concurrency=8", 'environment.id="babyai/GoToObjS4"', "environment.transfer=",
        "environment.workers=0", "model.context=512", "model.tiny.layers=2", "model.tiny.width=64",
        "imitation.demonstrations=8", "imitation.epochs=1", "evaluation.tasks=4", "rl.steps=2",
        "rl.tasks=2", "rl.group=2",
    ]  # fmt: skip
    folder = tmp_path / "cli"
    assert main(["train", "quick", "--seed", "2", "--set", *overrides, "--run", str(folder)]) == 0
    assert pa.Run(folder).recipe == run.recipe


def test_inside_a_running_event_loop_and_with_classes_of_ones_own() -> None:
    small = {**SMALL, "environment": {"turns": 3}, "agent": {"name": Careful}}
    small["imitation"] = {"demonstrations": 0}

    async def cell() -> pa.Run:
        return pa.train("quick", env=Door, rl={"steps": 0}, **small)

    run = asyncio.run(cell())
    assert run.recipe["environment"]["id"] == "tests.api.worlds:Door"
    assert run.recipe["environment"]["workers"] == 0
    assert run.recipe["agent"]["name"] == "tests.api.worlds:Careful"
    assert run.report.success["base"].mean == 1.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rl": {"stesp": 1}}, "There is no recipe key 'rl.stesp'. Did you mean 'rl.steps'?"),
        ({"rll": {"steps": 1}}, "There is no recipe key 'rll'."),
        ({"rl": {"steps": "many"}}, "The recipe key 'rl.steps' cannot be 'many'"),
        ({"rl": 3}, "The recipe key 'rl' cannot be 3"),
        ({"algorithm": "grop"}, "There is no algorithm 'grop'. Did you mean 'grpo'?"),
        ({"recipe": "quik"}, "There is no recipe 'quik'. Did you mean 'quick'?"),
        ({"env": "babyai/Nowhere"}, "There is no BabyAI environment 'Nowhere'."),
        ({"seed": "one"}, "The recipe key 'seed' cannot be 'one'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_before_anything_starts(
    options: dict[str, Any], reason: str, runs: Path
) -> None:
    with pytest.raises(pa.PalaestraError) as refused:
        pa.train(options.pop("recipe", "quick"), progress=False, **options)
    assert reason in str(refused.value)
    assert not runs.exists()


def test_a_run_that_is_not_there_or_has_no_policy_reports_it(run: pa.Run, runs: Path) -> None:
    with pytest.raises(pa.PalaestraError, match="There is no run in"):
        pa.Run(runs / "none")
    with pytest.raises(pa.PalaestraError, match="has no phase 'rl/9'; choose from: test/base"):
        run.episodes("rl/9")
    with pytest.raises(pa.PalaestraError, match="is no evaluation"):
        _ = run.results
    evaluated = pa.evaluate(Door, model="random", n=1, progress=False)
    with pytest.raises(pa.PalaestraError, match="has no trained policy"):
        _ = pa.Run(evaluated.folder).final
    with pytest.raises(pa.PalaestraError, match="There is no model 'none'"):
        pa.load("none")
