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
from palaestra.training.renamed_keys import HINTS, RENAMED, with_present_names
from palaestra.training.trace import read_trace
from tests.training.runs import RECIPE, write_recipe

OLD_TO_NEW = sorted(RENAMED.items())
REWARDS = {old for old, now in RENAMED.items() if "reward" in now}
CHANGED = [
    "environment.max_invalid_actions=2",
    "rl.quorum=2",
    "rl.rewards.environment=0.5",
    "rl.rewards.overlong=0.25",
    "rl.reward_options={outcome = {turn_cost = 0.2}, overlong = {limit = 40, buffer = 8}}",
]
SHORT = ["deterministic=false", "environment.workers=0", "environment.transfer=", "rl.steps=1"]


def with_old_names(recipe: dict[str, Any]) -> dict[str, Any]:
    """Write a recipe as the version before the renaming recorded it."""
    old = {table: dict(part) if isinstance(part, dict) else part for table, part in recipe.items()}
    weights, options = old["rl"].pop("rewards"), old["rl"].pop("reward_options")
    old["rl"] |= {
        "turn_cost": options.get("outcome", {}).get("turn_cost", 0.2),
        "invalid_cost": -weights["invalid"],
        "world_reward": weights.get("environment", 0.0),
        "progress_reward": weights.get("progress", 0.0),
        "overlong": None,
    }
    if "overlong" in weights:
        old["rl"]["overlong"] = {"factor": weights["overlong"], **options["overlong"]}
    for before, now in RENAMED.items():
        if before in REWARDS:
            continue
        table, _, key = now.rpartition(".")
        before_table, _, before_key = before.partition(".")
        old[before_table][before_key] = (old[table] if table else old).pop(key)
    return old


def test_every_new_name_is_a_key_and_no_old_one_is() -> None:
    known = set(keys())
    assert all(now in known or ".".join(now.split(".")[:2]) in known for now in RENAMED.values())
    assert not RENAMED.keys() & known


@pytest.mark.parametrize(("old", "new"), OLD_TO_NEW)
def test_an_old_key_in_a_file_is_answered_with_the_new_name(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _, key = old.partition(".")
    text = RECIPE.replace(f"[{table}]\n", f"[{table}]\n{key} = 1\n")
    assert main(["train", str(write_recipe(tmp_path, text)), "--dry-run"]) == 2
    answer = f"The recipe key '{old}' was renamed; use '{new}'{HINTS.get(old, '')}."
    assert capsys.readouterr().err.split() == f"palaestra: {answer}".split()


@pytest.mark.parametrize(("old", "new"), OLD_TO_NEW)
@pytest.mark.parametrize("value", ["1", ""])
def test_an_old_key_on_the_command_line_is_answered_with_the_new_name(
    old: str, new: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "quick", "--dry-run", "--set", f"{old}={value}"]) == 2
    assert f"use '{new}'" in " ".join(capsys.readouterr().err.split())


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


@pytest.mark.slow
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
        found = read_trace(run.database, "rl/1").shaping
    assert found.weights == {"outcome": 1, "invalid": -0.05, "environment": 0.5, "overlong": 0.25}
    assert found.options["overlong"] == {"limit": 40, "buffer": 8}


STAGE = {"do": "reinforce", "steps": 1, "progress_reward": 1.0, "invalid_cost": 0.5}


@pytest.mark.parametrize(
    "stages", [[STAGE], [{"do": "repeat", "rounds": 2, "stages": [STAGE]}]], ids=["top", "inside"]
)
def test_a_stage_that_reinforces_has_the_new_names_too(stages: list[dict[str, Any]]) -> None:
    recorded = load("quick", sections={"imitation": None, "rl": None}).model_dump(mode="json")
    read = with_present_names({**recorded, "stage": stages})["stage"]
    (stage,) = read if read[0]["do"] == "reinforce" else read[0]["stages"]
    assert stage["rewards"] == {"progress": 1.0, "invalid": -0.5}
    message = "'progress_reward' of a stage that reinforces was renamed; use 'rewards.progress'"
    with pytest.raises(InputError, match=message):
        load("quick", sections={"imitation": None, "rl": None, "stage": stages})
