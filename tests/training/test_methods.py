"""Every method that a recipe can name trains a real policy, and resumes after a stop."""

from __future__ import annotations

import asyncio
import io
import math
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from palaestra.core.errors import InputError
from palaestra.learning.critics.value_head import PREFIX
from palaestra.learning.methods.algorithms import ALGORITHMS
from palaestra.models.local.scoring import ScoringModel
from palaestra.runtime.progress import Reporter
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import Recipe, check, load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import execute
from palaestra.training.usable_parts import algorithms
from tests.chosen import mostly_slow
from tests.training.learning import train, weights
from tests.training.runs import write_recipe

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
    "levels": ['rl.curriculum.levels=["babyai/GoToObjS4", "babyai/GoToObjS6"]'],
    "conflict": [
        'rl.curriculum.levels=["babyai/GoToObjS4", "babyai/GoToObjS6"]',
        "rl.conflict=project",
    ],
    "replay": [
        "rl.curriculum.tasks=4",
        "rl.curriculum.rule=dart",
        "rl.success_replay=true",
        "rl.steps=3",
    ],
    "entropulse": ["rl.entropulse.rl_steps=1", "rl.entropulse.sft_steps=1", "rl.steps=3"],
    "horizon": ["rl.horizon.turns=[2, 4]", "rl.horizon.every=1"],
    "progress": ["rl.rewards.progress=0.5", "rl.algorithm=mt-grpo"],
    "overlong": [
        "rl.rewards.overlong=1",
        "rl.reward_options.overlong.limit=12",
        "rl.reward_options.overlong.buffer=10",
    ],
    "advised": ["rl.advisor.probability=0.5", "rl.advisor.anneal=3"],
    "interventions": ["rl.advisor.after=1", "rl.rewards.intervention=-1"],
    "privileged": ["rl.privileged.coefficient=0.5"],
    "running baseline": ["rl.credit=running", "rl.loss=pg"],
}


FAST = ("shared critic", "corrected", "entropy bonus", "horizon", "advised")
BESIDE = {"spa": "progress_model", "archer": "utterance_critic"}


def undo_last_step(run: RunFolder, recipe: Recipe) -> None:
    """As if the process had been killed before the last step was learned."""
    stages = run.database.get("stages")
    assert isinstance(stages, list)
    run.database.put("stages", [row for row in stages if row["name"] not in ("rl", "test/rl")])
    last = recipe.rl.steps
    checkpoint.remove(run.checkpoints, f"rl-{last:06d}")
    rolled_ahead = last - 1 + recipe.rl.staleness
    for phase in ["test/rl", *(f"rl/{step}" for step in range(rolled_ahead + 1, last + 1))]:
        for episode in run.database.episodes(phase):
            run.database.forget(episode.key)


def varied(name: str) -> list[str]:
    """Small batches that teach something: DAPO's filter may leave out all of their groups.

    IGPO has a world with a known answer.
    """
    if name == "igpo":
        return ["environment.id=questions/things-2"]
    if name in BESIDE:  # models that learn alone at first
        return [f"rl.{BESIDE[name]}.warmup=0", f"rl.{BESIDE[name]}.updates=2"]
    return ["rl.filter=all"] if ALGORITHMS[name].filter == "dapo" else []


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(algorithms(), "grpo", "loop", "turn-ppo"))
def test_every_named_algorithm_moves_the_weights(name: str, start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, f"rl.algorithm={name}", *varied(name)) as run:
        assert len(run.database.metrics("rl")) == 2
        assert weights(run.path / "final") != weights(start)


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    mostly_slow(COMBINATIONS.values(), *(COMBINATIONS[name] for name in FAST)),
    ids=COMBINATIONS,
)
def test_every_combination_moves_the_weights(keys: list[str], start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *keys) as run:
        assert weights(run.path / "final") != weights(start)


@pytest.mark.parametrize("kind", mostly_slow(["own critic", "shared critic"], "shared critic"))
def test_a_critic_is_left_as_a_scorer_of_states(kind: str, start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *COMBINATIONS[kind]) as run:
        scorer = ScoringModel("critic", run.path / "final-value")
        last = checkpoint.load(run.checkpoints, "rl-000002").tensors
        prompt = run.database.episodes("rl/2")[0].calls[0].messages
    part = last["critic_weights" if kind == "own critic" else "weights"]
    learned = {name: part[PREFIX + name] for name in ("linear.weight", "linear.bias")}
    head = load_file(run.path / "final-value" / "head.safetensors")
    assert head.keys() == learned.keys()
    assert all(torch.equal(head[name], learned[name]) for name in head)
    assert float(head["linear.weight"].abs().sum()) > 0
    worth, read = scorer.score(prompt)
    assert math.isfinite(worth) and worth != 0 and read > len(prompt)


def test_a_run_without_a_critic_leaves_none(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, "rl.algorithm=grpo", "rl.filter=all") as run:
        assert (run.path / "final").is_dir()
        assert not (run.path / "final-value").exists()


@pytest.mark.parametrize(
    ("demonstrator", "keys"),
    [
        ("policy", ["imitation.examples=rejection", "imitation.examples_options.cap=1"]),
        pytest.param("random", ["imitation.examples_options.least=0"], marks=pytest.mark.slow),
        ("expert", ["imitation.examples=step-masks"]),
    ],
)
def test_examples_of_every_speaker_can_be_imitated(
    demonstrator: str, keys: list[str], start: Path, tmp_path: Path
) -> None:
    overrides = [
        f"imitation.demonstrator={demonstrator}",
        "imitation.demonstrations=24",
        "rl.steps=0",
    ]
    with train(start, tmp_path, *overrides, *keys) as run:
        assert weights(run.path / "final") != weights(start)
        name = {call.policy for e in run.database.episodes("demonstrations") for call in e.calls}
        assert name == {demonstrator}


@pytest.mark.slow
@pytest.mark.parametrize("keys", COMBINATIONS.values(), ids=COMBINATIONS)
def test_a_killed_run_ends_with_the_same_weights(
    keys: list[str], start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, *keys) as run:
        whole, path = weights(run.path / "final"), run.path
    with RunFolder.open(path) as run:
        recipe = check(dict(run.database.get("recipe") or {}))
        undo_last_step(run, recipe)
        shutil.rmtree(path / "final")
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    assert weights(path / "final") == whole


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.credit=igpo"], "does not declare 'answer'"),
        (["rl.credit=nonsense"], "There is no credit 'nonsense'"),
        (["rl.credit=rloo +"], "cannot be read"),
        (["rl.credit_options.gamma=0.5"], "no option 'gamma'"),
        (["rl.loss_options.high=0.5"], "no option 'high'"),
        (["rl.correction_options.cap=2.0"], "without rl.correction"),
        (["rl.critic.kind=head"], "reads no values"),
        (["rl.critic.kind=separate", "rl.critic.coefficient=1.0"], "coefficient has no effect"),
        (["rl.critic.kind=separate", "rl.critic.shared=true"], "shared has no effect"),
        (["rl.recompute=false"], "no effect without rl.staleness"),
        (["rl.group=1"], "rl.group"),
        (["rl.curriculum.rule=alp"], "levels or tasks to choose from"),
        (["rl.curriculum.tasks=4", "rl.curriculum.rule=scaling-inter"], "chooses no tasks"),
        (["rl.curriculum.tasks=4", "rl.curriculum.rule=waker"], "nothing measures the error"),
        (['rl.curriculum.levels=["babyai/Nowhere"]'], "There is no"),
        (["rl.success_replay=true"], "rl.curriculum.tasks"),
    ],
)
def test_what_cannot_work_is_reported_before_anything_starts(
    keys: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        check_recipe(load(str(write_recipe(tmp_path)), keys))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "rl.loss=tests.learning.methods.test_checks:scalar",
            r"The loss '.*:scalar' returned the shape",
        ),
        ("rl.credit=tests.learning.methods.test_checks:nan", r"The credit rule '.*:nan' gave nan"),
    ],
)
def test_a_rule_of_ones_own_that_is_wrong_ends_the_run_with_a_sentence(
    key: str, message: str, start: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train(start, tmp_path, key)


def test_steps_tell_what_a_separate_critic_has_learned(start: Path, tmp_path: Path) -> None:
    keys = [key for key in COMBINATIONS["own critic"] if "warmup" not in key]
    with train(start, tmp_path, *keys) as run:
        losses = [metrics["value_loss"] for _, metrics in run.database.metrics("rl")]
    assert len(losses) == 2 and all(loss > 0 for loss in losses)
