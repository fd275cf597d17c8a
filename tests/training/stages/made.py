"""Small programs of stages, and runs of them within this process."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from rich.console import Console

from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import Recipe, check, load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import execute

HEAD = """
summary = "stages in a few seconds"
deterministic = true
concurrency = 8
checkpoint_every = 1

[environment]
id = "babyai/GoToObjS4"
workers = 0

[model]
name = "tiny"
context = 512

[model.tiny]
layers = 2
width = 64

[evaluation]
tasks = 4
"""

IMITATE = """
[[stage]]
do = "imitate"
from = {speaker = "expert", demonstrations = 48}
epochs = 6
learning_rate = 3e-3
"""

ROUNDS = (
    HEAD
    + IMITATE
    + """
[[stage]]
do = "repeat"
name = "improve"
rounds = 2
stages = [
  {do = "explore", tasks = 8, group = 4},
  {do = "prefer", from = "explore", learning_rate = 1e-3, batch = 8},
  {do = "imitate", name = "keep", from = {stage = "explore", rounds = "all"}, learning_rate = 1e-3},
  {do = "evaluate", name = "check", split = "validation", tasks = 4},
]

[[stage]]
do = "merge"
from = ["imitate", "keep"]

[[stage]]
do = "reinforce"
steps = 2
tasks = 3
group = 4
learning_rate = 1e-3
"""
)


def written(folder: Path, text: str) -> Path:
    """A recipe file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "stages.toml"
    file.write_text(text)
    return file


def recipe_of(folder: Path, text: str, *keys: str) -> Recipe:
    recipe = load(str(written(folder, text)), keys)
    check_recipe(recipe)
    return recipe


def run_stages(folder: Path, text: str, *keys: str) -> tuple[Path, str]:
    """Run a program of stages; return the run's folder, and what was said."""
    recipe, path = recipe_of(folder, text, *keys), folder / "run"
    said = io.StringIO()
    with RunFolder.create(path, recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=said, width=400))))
    return path, said.getvalue()


def resumed(path: Path) -> str:
    """Go on with a run; return what was said."""
    said = io.StringIO()
    with RunFolder.open(path) as run:
        recipe = check(dict(run.database.get("recipe") or {}))
        asyncio.run(execute(recipe, run, Reporter(Console(file=said, width=400))))
    return said.getvalue()
