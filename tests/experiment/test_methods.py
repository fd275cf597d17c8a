"""Every way to learn that a recipe can name trains a real policy, and goes on after a stop."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.errors import InputError
from palaestra.experiment.check import check_recipe
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import load
from palaestra.experiment.run import execute
from palaestra.learning.algorithms import ALGORITHMS
from palaestra.store.run import RunFolder
from tests.experiment.runs import write_recipe

SMALL = [
    "rl.steps=2",
    "rl.tasks=3",
    "rl.group=3",
    "checkpoint_every=1",
    "environment.transfer=",
    "environment.workers=0",
    "evaluation.tasks=2",
    "imitation.demonstrations=0",
    "rl.invalid_cost=0.3",
]
TRAINABLE = [name for name in ALGORITHMS if name not in ("igpo", "spa")]
COMBINATIONS = {
    "sum of rules": ["rl.credit=rloo + 0.5*anchor", "rl.credit_options.anchor.gamma=0.9"],
    "ratio per rollout": ["rl.loss=loop", "rl.loss_options.unit=rollout"],
    "kl to the start": ["rl.algorithm=grpo", "rl.loss_options.beta=0.05"],
    "own critic": ["rl.algorithm=turn-ppo", "rl.critic.kind=separate", "rl.critic.warmup=1"],
    "shared critic": ["rl.algorithm=ppo", "rl.critic.shared=true"],
    "stale": ["rl.staleness=2", "rl.loss=decoupled", "rl.steps=3"],
    "corrected": ["rl.staleness=1", "rl.correction=tis", "rl.correction_options.cap=1.5"],
    "entropy bonus": ["rl.entropy.bonus=0.01"],
    "entropy smoothed": ["rl.entropy.bonus=0.01", "rl.entropy.smoothing=1.0", "rl.steps=3"],
    "horizon": ["rl.horizon.turns=[2, 4]", "rl.horizon.every=1"],
    "progress": ["rl.progress_reward=0.5", "rl.algorithm=mt-grpo"],
    "running baseline": ["rl.credit=running", "rl.loss=pg"],
}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has imitated a little: sometimes right, so that rollouts differ."""
    folder = tmp_path_factory.mktemp("start")
    keys = ["rl.steps=0", "evaluation.tasks=2", "environment.transfer=", "environment.workers=0"]
    recipe = load(str(write_recipe(folder)), keys)
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    return folder / "run" / "final"


def train(start: Path, folder: Path, *keys: str, stop_after: int | None = None) -> RunFolder:
    """RL from `start` on; with `stop_after`, taken up again after that many steps."""
    overrides = [f"model.name={start}", "model.tiny=", *SMALL, *keys]
    recipe = load(str(write_recipe(folder)), overrides)
    check_recipe(recipe)
    reporter = Reporter(Console(file=io.StringIO()))
    path = folder / "run"
    if stop_after is not None:
        first = load(str(write_recipe(folder)), [*overrides, f"rl.steps={stop_after}"])
        with RunFolder.create(path, first.model_dump(mode="json")) as run:
            asyncio.run(execute(first, run, reporter))
            undo_what_follows_rl(run)
        with RunFolder.open(path) as run:
            asyncio.run(execute(recipe, run, reporter))
    else:
        with RunFolder.create(path, recipe.model_dump(mode="json")) as run:
            asyncio.run(execute(recipe, run, reporter))
    return RunFolder.read(path)


def undo_what_follows_rl(run: RunFolder) -> None:
    """As if the process had been killed after the last checkpoint."""
    stages = run.database.get("stages")
    assert isinstance(stages, list)
    kept = [row for row in stages if row["name"] not in ("rl", "test/rl")]
    assert len(kept) == len(stages) - 2
    run.database.put("stages", kept)
    for episode in run.database.episodes("test/rl"):
        run.database.forget(episode.key)


def weights(model: Path) -> str:
    """Of a model, bit for bit."""
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


def varied(name: str) -> list[str]:
    """Small batches that teach something: DAPO's filter may leave out all of their groups."""
    return ["rl.filter=all"] if ALGORITHMS[name].filter == "dapo" else []


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_named_algorithm_moves_the_weights(name: str, start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, f"rl.algorithm={name}", *varied(name)) as run:
        assert len(run.database.metrics("rl")) == 2
        assert weights(run.path / "final") != weights(start)


@pytest.mark.parametrize("keys", COMBINATIONS.values(), ids=COMBINATIONS)
def test_every_combination_moves_the_weights(keys: list[str], start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *keys) as run:
        assert weights(run.path / "final") != weights(start)


@pytest.mark.slow
@pytest.mark.parametrize("keys", COMBINATIONS.values(), ids=COMBINATIONS)
def test_a_stopped_run_ends_with_the_same_weights(
    keys: list[str], start: Path, tmp_path: Path
) -> None:
    steps = next((k for k in keys if k.startswith("rl.steps=")), "rl.steps=2")
    (tmp_path / "whole").mkdir()
    (tmp_path / "stopped").mkdir()
    with train(start, tmp_path / "whole", *keys, steps) as run:
        whole = weights(run.path / "final")
    with train(start, tmp_path / "stopped", *keys, steps, stop_after=1) as run:
        assert weights(run.path / "final") == whole


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["rl.credit=igpo"], "beliefs"),
        (["rl.credit=nonsense"], "There is no credit 'nonsense'"),
        (["rl.credit=rloo +"], "cannot be read"),
        (["rl.credit_options.gamma=0.5"], "no option 'gamma'"),
        (["rl.loss_options.high=0.5"], "no option 'high'"),
        (["rl.correction_options.cap=2.0"], "without rl.correction"),
        (["rl.critic.kind=head"], "reads no values"),
        (["rl.group=1"], "rl.group"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    keys: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        check_recipe(load(str(write_recipe(tmp_path)), keys))
