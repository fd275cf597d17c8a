"""Asynchronous training: rollouts go on while the learner works, within the staleness bound."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.errors import InputError
from palaestra.runtime.progress import Reporter
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import execute
from tests.chosen import mostly_slow
from tests.training.runs import write_recipe

STEPS, TASKS, GROUP, BOUND = 5, 2, 3, 2
KEYS = [
    "deterministic=false", "concurrency=9", "environment.transfer=", "environment.workers=1",
    "evaluation.tasks=2", "checkpoint_every=1", "rl.rewards.invalid=-0.3",
    f"rl.steps={STEPS}", f"rl.tasks={TASKS}", f"rl.group={GROUP}", f"rl.staleness={BOUND}",
    "rl.asynchronous=true", "rl.loss=decoupled",
]  # fmt: skip


def execute_in(path: Path, *keys: str, folder: Path) -> None:
    recipe = load(str(write_recipe(folder)), [*KEYS, *keys])
    check_recipe(recipe)
    new = not path.exists()
    opened = RunFolder.create(path, recipe.model_dump(mode="json")) if new else RunFolder.open(path)
    with opened as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))


@pytest.mark.parametrize("on_update", mostly_slow(["drain", "recompute", "keep"], "keep"))
def test_no_token_is_staler_than_the_bound(on_update: str, tmp_path: Path) -> None:
    execute_in(tmp_path / "run", f"rl.on_update={on_update}", folder=tmp_path)
    with RunFolder.read(tmp_path / "run") as run:
        state = checkpoint.load(run.checkpoints, f"rl-{STEPS:06d}").state
        assert state["flow"]["taken"] == list(range(STEPS * TASKS))
        assert [step for step, _ in run.database.metrics("rl")] == list(range(1, STEPS + 1))
        episodes = [e for s in range(1, STEPS + 1) for e in run.database.episodes(f"rl/{s}")]
        assert len(episodes) == STEPS * TASKS * GROUP
        first = checkpoint.load(run.checkpoints, "imitation").state["version"]
        updates = (state["version"] - first) / STEPS  # per step
        stale = [m["stale"] for _, m in run.database.metrics("rl")]
        assert 0 < max(stale) <= BOUND * updates


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_groups_that_are_left(tmp_path: Path) -> None:
    path = tmp_path / "run"
    execute_in(path, folder=tmp_path)
    with RunFolder.open(path) as run:  # as if killed while step 4 was learned
        stages = run.database.get("stages")
        assert isinstance(stages, list)
        run.database.put("stages", [row for row in stages if row["name"] not in ("rl", "test/rl")])
        kept = checkpoint.load(run.checkpoints, f"rl-{STEPS - 1:06d}").state["flow"]["taken"]
        checkpoint.remove(run.checkpoints, f"rl-{STEPS:06d}")
    execute_in(path, folder=tmp_path)
    with RunFolder.read(path) as run:
        taken = checkpoint.load(run.checkpoints, f"rl-{STEPS:06d}").state["flow"]["taken"]
        assert set(kept) < set(taken) == set(range(STEPS * TASKS))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.staleness=0", "rl.loss=ppo"], "rl.staleness"),
        (["deterministic=true"], "deterministic"),
        (["rl.credit=remax"], "greedy"),
        (["rl.entropulse.rl_steps=1", "rl.entropulse.sft_steps=1"], "rl.entropulse"),
        (["rl.asynchronous=false", "rl.on_update=keep"], "rl.on_update"),
    ],
)
def test_what_cannot_be_asynchronous_is_reported(
    keys: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        check_recipe(load(str(write_recipe(tmp_path)), [*KEYS, *keys]))
