"""Old recipe keys: a written one is answered with the new name, a recorded one is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import keys, load, read_recorded
from palaestra.training.renamed_keys import RENAMED, with_present_names
from palaestra.training.trace import read_trace
from tests.training.runs import RECIPE, write_recipe

OLD_TO_NEW = sorted(RENAMED.items())
CHANGED = ["environment.max_invalid_actions=2", "rl.quorum=2", "rl.environment_reward=0.5"]
SHORT = ["deterministic=false", "environment.workers=0", "environment.transfer=", "rl.steps=1"]


def with_old_names(recipe: dict[str, Any]) -> dict[str, Any]:
    """Write a recipe as the version before the renaming recorded it."""
    old = {table: dict(part) if isinstance(part, dict) else part for table, part in recipe.items()}
    for before, now in RENAMED.items():
        table, _, key = now.rpartition(".")
        before_table, _, before_key = before.partition(".")
        old[before_table][before_key] = (old[table] if table else old).pop(key)
    return old


def test_every_new_name_is_a_key_and_no_old_one_is() -> None:
    assert set(RENAMED.values()) <= set(keys())
    assert not RENAMED.keys() & set(keys())


@pytest.mark.parametrize(("old", "new"), OLD_TO_NEW)
def test_an_old_key_in_a_file_is_answered_with_the_new_name(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _, key = old.partition(".")
    text = RECIPE.replace(f"[{table}]\n", f"[{table}]\n{key} = 1\n")
    assert main(["train", str(write_recipe(tmp_path, text)), "--dry-run"]) == 2
    answer = f"The recipe key '{old}' was renamed; use '{new}'."
    assert capsys.readouterr().err.split() == f"palaestra: {answer}".split()


@pytest.mark.parametrize(("old", "new"), OLD_TO_NEW)
@pytest.mark.parametrize("value", ["1", ""])
def test_an_old_key_on_the_command_line_is_answered_with_the_new_name(
    old: str, new: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "quick", "--dry-run", "--set", f"{old}={value}"]) == 2
    assert f"use '{new}'." in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("old", "new"), OLD_TO_NEW)
def test_an_old_key_from_python_is_answered_with_the_new_name(old: str, new: str) -> None:
    table, _, key = old.partition(".")
    with pytest.raises(InputError, match=f"'{old}' was renamed; use '{new}'"):
        pa.train("quick", progress=False, **{table: {key: None}})


def test_a_recipe_with_present_names_is_read_as_it_is() -> None:
    recorded = load("quick").model_dump(mode="json")
    assert with_present_names(recorded) == recorded


def test_the_settings_of_an_evaluation_are_read_as_they_are() -> None:
    recorded = {"command": "eval", "environment": "babyai/GoToObj", "models": ["tiny"]}
    assert with_present_names(recorded) == recorded


def test_a_run_recorded_under_old_names_resumes_and_keeps_its_rewards(tmp_path: Path) -> None:
    recipe = load(str(write_recipe(tmp_path)), [*SHORT, *CHANGED])
    recorded = with_old_names(recipe.model_dump(mode="json"))
    assert read_recorded(recorded) == recipe
    folder = tmp_path / "run"
    with RunFolder.create(folder, recorded):
        pass  # stopped before its first episode
    assert main(["train", "--resume", str(folder), "--json"]) == 0
    assert pa.Run(folder).recipe == recipe.model_dump(mode="json")
    with RunFolder.read(folder) as run:
        assert len(run.database.metrics("rl")) == 1
        assert read_trace(run.database, "rl/1").shaping.environment == 0.5
