"""What several tests of runs begin with."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.training.runs import write_recipe


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has imitated a little: sometimes right, so that rollouts differ."""
    folder = tmp_path_factory.mktemp("start")
    keys = ["rl.steps=0", "evaluation.tasks=2", "environment.transfer=", "environment.workers=0"]
    recipe = load(str(write_recipe(folder)), keys)
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    return folder / "run" / "final"
