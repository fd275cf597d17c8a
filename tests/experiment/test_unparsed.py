"""How long an agent may speak nonsense before its episode ends is the recipe's to say."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.errors import RecipeError
from palaestra.core.outcome import Limit, Outcome
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import load
from palaestra.experiment.run import execute
from palaestra.store.run import RunFolder
from tests.experiment.runs import write_recipe

UNTAUGHT = [
    *("imitation.demonstrations=0", "rl.steps=0", "evaluation.tasks=2", "environment.turns=5"),
    *("environment.transfer=", "environment.workers=0"),
]
"""An untrained policy says nothing that the world understands."""


@pytest.mark.parametrize(
    ("keys", "turns", "ends"),
    [
        ([], 3, "error(unparsed, agent)"),
        (["environment.unparsed=2"], 2, "error(unparsed, agent)"),
        (["environment.unparsed=0"], 5, str(Outcome.truncated(Limit.TURNS))),
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
        recorded = (run.database.get("recipe") or {})["environment"]["unparsed"]
    assert {(str(e.outcome), e.usage.turns) for e in episodes} == {(ends, turns)}
    assert recorded == recipe.environment.unparsed


def test_fewer_than_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"environment\.unparsed"):
        load(str(write_recipe(tmp_path)), ["environment.unparsed=-1"])
