"""Short training runs from a common start."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path

from rich.console import Console

from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import execute
from tests.training.runs import write_recipe

SMALL = [
    "rl.steps=2",
    "rl.tasks=3",
    "rl.group=3",
    "checkpoint_every=1",
    "environment.transfer=",
    "environment.workers=0",
    "evaluation.tasks=2",
    "imitation.demonstrations=0",
    "rl.rewards.invalid=-0.3",
]


def train(start: Path, folder: Path, *keys: str) -> RunFolder:
    """RL from `start` on."""
    recipe = load(str(write_recipe(folder)), [f"model.name={start}", "model.tiny=", *SMALL, *keys])
    check_recipe(recipe)
    path = folder / "run"
    with RunFolder.create(path, recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    return RunFolder.read(path)


def weights(model: Path) -> str:
    """Of a model, bit for bit."""
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
