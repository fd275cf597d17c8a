"""How long an agent may speak nonsense before its episode ends is the recipe's to say."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.errors import RecipeError
from palaestra.core.outcome import Limit, Outcome
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.run import execute
from tests.training.runs import write_recipe

UNTAUGHT = [
    *("imitation.demonstrations=0", "rl.steps=0", "evaluation.tasks=2", "environment.turns=5"),
    *("environment.transfer=", "environment.workers=0"),
]
"""An untrained policy says nothing that the world understands."""


@pytest.mark.parametrize(
    ("keys", "turns", "ends"),
    [
        ([], 3, "error(unparsed, agent)"),
        (["environment.max_invalid_actions=2"], 2, "error(unparsed, agent)"),
        (["environment.max_invalid_actions=0"], 5, str(Outcome.truncated(Limit.TURNS))),
    ],
)
def test_nonsense_ends_an_episode_unless_that_is_switched_off(
    keys: list[str], turns: int, ends: str, tmp_path: Path
) -> None:
    recipe = load(str(write_recipe(tmp_path)), [*UNTAUGHT, *keys])
    with RunFolder.create(tmp_path / "run", recipe.model_dump(mode="json")) as run:
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    with RunFolder.read(tmp_path / "run") as run:
        episodes = run.database.episodes("test/base")
        recorded = (run.database.get("recipe") or {})["environment"]["max_invalid_actions"]
    assert {(str(e.outcome), e.usage.turns) for e in episodes} == {(ends, turns)}
    assert recorded == recipe.environment.max_invalid_actions


def test_fewer_than_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"environment\.max_invalid_actions"):
        load(str(write_recipe(tmp_path)), ["environment.max_invalid_actions=-1"])
