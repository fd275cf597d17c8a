"""Memory of models beside the policy, as a dry run counts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.cli.stage_plan import efforts
from palaestra.training.memory_beside import ModelBeside, Sizes
from tests.training.stages.made import HEAD, IMITATE, recipe_of, written

WHOLE = Sizes(parameters=100, trained=100, weights=400, narrow=False)
UPPER = Sizes(parameters=100, trained=30, weights=200, narrow=True)


@pytest.mark.parametrize(
    ("model", "whole", "upper"),
    [
        # weights, then 4 bytes for each of: two moments, a gradient, a master weight if narrow
        (ModelBeside("progress model"), 400 + 12 * 100, 200 + 16 * 30),
        (ModelBeside("separate critic", whole=True), 400 + 12 * 100, 200 + 16 * 100),
        (ModelBeside("utterance critic", target=True), 400 + 16 * 100, 200 + 16 * 30 + 400),
        (ModelBeside("reward model", learns=False), 400 + 8 * 100, 200 + 12 * 30),
    ],
)
def test_bytes_of_a_model_beside_the_policy(model: ModelBeside, whole: int, upper: int) -> None:
    assert (model.bytes(WHOLE), model.bytes(UPPER)) == (whole, upper)


def dry(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    assert main(["train", str(written(folder, text)), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    size = Sizes(found["parameters"], found["trained_parameters"], 4 * found["parameters"], False)
    return {"size": size.parameters, **found["memory_bytes"]}


def rl(keys: str) -> str:
    return HEAD + IMITATE + f"[[stage]]\ndo = 'reinforce'\nsteps = 1\n{keys}\n"


@pytest.mark.parametrize(
    ("keys", "copies"),
    [
        ("", 0),
        ("algorithm = 'ppo'", 0),  # a head on the policy's features
        ("algorithm = 'ppo'\ncritic = {kind = 'separate'}", 16),
        ("algorithm = 'spa'", 16),
        ("algorithm = 'archer'", 20),
    ],
)
def test_a_dry_run_counts_what_learns_beside_the_policy(
    keys: str, copies: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dry(tmp_path, rl(keys), capsys)
    assert found["beside"] == copies * found["size"]  # bytes a weight, all trained in fp32
    parts = sum(v for name, v in found.items() if name not in ("size", "total"))
    assert found["total"] == pytest.approx(parts)


def test_action_values_hold_target_networks_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explore = "[[stage]]\ndo = 'explore'\ntasks = 4\n"
    learned = "[[stage]]\ndo = 'value'\nfrom = 'explore'\n"
    used = "[[stage]]\ndo = 'imitate'\nname = 'own'\nfrom = 'explore'\nadvantages = {}\n"
    found = dry(tmp_path, HEAD + IMITATE + explore + learned + used, capsys)
    assert found["beside"] == 20 * found["size"]


def test_a_dry_run_counts_what_models_beside_the_policy_learn_from(tmp_path: Path) -> None:
    text = rl("tasks = 2\ngroup = 3").replace("steps = 1", "steps = 4")
    keys = {
        "algorithm = 'loop'": 0.0,
        "algorithm = 'spa'\nprogress_model = {updates = 5, batch = 7}": 4 * 5 * 7,
        "algorithm = 'archer'\nutterance_critic = {updates = 5, batch = 6}": 4 * 5 * 6 * 4 / 3,
    }
    for key, more in keys.items():
        *_, last = (e for e in efforts(recipe_of(tmp_path, text + key)) if e.name == "reinforce")
        assert last.learned == pytest.approx(4 * 2 * 3 + more), key


def test_a_refresh_counts_as_often_as_it_takes_place(tmp_path: Path) -> None:
    text = (
        HEAD
        + "[[stage]]\ndo = 'explore'\n[[stage]]\ndo = 'reward'\nfrom = 'explore'\nbatch = 3\n"
        + "[[stage]]\ndo = 'reinforce'\nreward_model = 'reward'\nsteps = 5\ntasks = 1\ngroup = 2\n"
        + "reward_refresh = {every = 2, updates = 7}\n"
    )
    *_, last = (e for e in efforts(recipe_of(tmp_path, text)) if e.name == "reinforce")
    assert last.learned == 5 * 2 + 2 * 7 * 3


def test_the_stage_that_holds_most_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explore = "[[stage]]\ndo = 'explore'\ntasks = 4\ngroup = 2\n"
    model = "[[stage]]\ndo = 'reward'\nfrom = 'explore'\n"
    stages = HEAD + IMITATE + explore + model
    for refresh, copies in (("", 16), ("reward_refresh = {every = 1}\nalgorithm = 'spa'", 32)):
        use = f"[[stage]]\ndo = 'reinforce'\nsteps = 1\nreward_model = 'reward'\n{refresh}\n"
        found = dry(tmp_path, stages + use, capsys)
        # learning it takes more than being rewarded by it, unless it goes on learning there
        assert found["beside"] == copies * found["size"]
    assert main(["train", str(tmp_path / "stages.toml"), "--dry-run"]) == 0
    assert "# beside the policy: progress model, reward model" in capsys.readouterr().out
