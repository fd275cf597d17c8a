"""Offline learning on Gymnasium: goals in hindsight, actions that a model names, adapters."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.goals import with_goal
from palaestra.models.local.lora import add_lora
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training import run_context
from palaestra.training.recipe import load
from palaestra.training.recipe_sections import Tiny
from palaestra.training.run import vocabulary_texts
from palaestra.training.stage_sections import Imitate
from palaestra.training.stages.studying import conversation_rows
from tests.chosen import mostly_slow
from tests.training.runs import weights_hash
from tests.training.stages.made import HEAD, recipe_of, resumed, run_stages

GOALS = HEAD.replace(
    'id = "babyai/GoToObjS4"',
    'id = "gymnasium-goals/Taxi-v4/outside"\n'
    'transfer = "gymnasium-goals/Taxi-v4/corner"\nturns = 8',
).replace("tasks = 4", "tasks = 4\ntransfer_tasks = 4")

EXPLORE = """
[[stage]]
do = "explore"
speaker = "random"
tasks = 12
"""

RELABELLED = """
[[stage]]
do = "imitate"
from = "explore"
examples = "{0}"
epochs = 1
learning_rate = 1e-3
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule", mostly_slow(["hindsight-goals", "weighted-goals"], "weighted-goals")
)
def test_goals_reached_by_chance_are_learned_and_tested_in_and_out_of_distribution(
    tmp_path: Path, rule: str
) -> None:
    run, _ = run_stages(tmp_path, GOALS + EXPLORE + RELABELLED.replace("{0}", rule))
    with RunFolder.read(run) as opened:
        learned = opened.database.get("rows/imitation")["explore"]
        tested = {
            name: {e.task.environment for e in opened.database.episodes(f"{name}/imitation")}
            for name in ("test", "transfer")
        }
    assert learned["speaker"] == "random" and learned["rows"] > 12  # most reach several goals
    assert tested["test"] == {"gymnasium-goals/Taxi-v4/outside"}
    assert tested["transfer"] == {"gymnasium-goals/Taxi-v4/corner"}
    before = weights_hash(run)
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "final")
    resumed(run)
    assert weights_hash(run) == before


def test_goals_need_an_environment_that_states_them(tmp_path: Path) -> None:
    text = HEAD + EXPLORE + RELABELLED.replace("{0}", "hindsight-goals")
    with pytest.raises(CapabilityMissing, match="the tasks of 'babyai/GoToObjS4' state none"):
        recipe_of(tmp_path, text)


# ── actions that a model names ───────────────────────────────────────────────

LABELLED = """
[[stage]]
do = "label"
from = "explore"
share = 0.25
updates = {updates}
batch = 16
learning_rate = 3e-3

[[stage]]
do = "imitate"
from = {{stage = "explore", labelled = "label"}}
examples = "weighted-goals"
epochs = 1
learning_rate = 1e-3
"""


def test_a_stage_names_the_actions_of_most_episodes_from_those_of_a_few(tmp_path: Path) -> None:
    run, said = run_stages(tmp_path, GOALS + EXPLORE + LABELLED.format(updates=20))
    with RunFolder.read(run) as opened:
        database = opened.database
        document, found = database.get("labels/label"), database.get("labelled/label")
        episodes = database.episodes("explore")
        losses = [row["loss"] for _, row in database.metrics("label")]
        learned = database.get("rows/imitation")["explore"]
    assert document["given"] == [str(episode.key) for episode in episodes[:3]]
    assert set(document["labels"]) == {str(episode.key) for episode in episodes[3:]}
    moves = {"north", "south", "east", "west"}
    assert all(set(own.values()) <= moves for own in document["labels"].values())
    assert len(losses) == 20 and losses[-1] < losses[0]
    right = [
        document["labels"][str(e.key)][str(step.call)] == step.action.text
        for e in episodes[3:]
        for step in e.steps
    ]
    assert found == {"episodes": 9, "actions": len(right), "accuracy": sum(right) / len(right)}
    assert "label: learned from 3 of 12 episodes, and named" in said
    assert learned["rows"] > 0
    before = weights_hash(run)
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "final")
    resumed(run)
    assert weights_hash(run) == before


def test_what_is_labelled_and_by_whom_is_checked(tmp_path: Path) -> None:
    text = GOALS + EXPLORE + LABELLED.format(updates=1)
    with pytest.raises(InputError, match="no earlier stage that labels 'explore'"):
        recipe_of(tmp_path, text.replace('labelled = "label"', 'labelled = "explore"'))
    other = EXPLORE.replace("tasks", 'name = "other"\ntasks')
    both = text.replace('{stage = "explore", l', '{stage = "other", l')
    with pytest.raises(InputError, match="'other' from 'label', which does not read it"):
        recipe_of(tmp_path, both.replace(EXPLORE, EXPLORE + other))
    with pytest.raises(InputError, match="writes proxy labels that no later stage reads"):
        recipe_of(tmp_path, text.replace(', labelled = "label"', ""))
    with pytest.raises(InputError, match=r"share = 0.25 of 1 episodes gives actions to 1"):
        run_stages(tmp_path, text, "stage.explore.tasks=1")


# ── adapters of a pre-trained model of trajectories ──────────────────────────

PASTA = """
[[stage]]
do = "study"
from = "explore"
form = "chat"
instructions = false
learning_rate = 1e-3

[[stage]]
do = "imitate"
from = {speaker = "expert", demonstrations = 4}
adapter_rank = 1
epochs = 2
learning_rate = 1e-2
"""


def test_a_stage_learns_by_adapters_and_leaves_a_version_of_all_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, dict[str, torch.Tensor]] = {}

    def keep(folder: Path, name: str, tensors: Any, state: Any) -> Path:
        kept[name] = {key: tensor.clone() for key, tensor in tensors["weights"].items()}
        return real(folder, name, tensors, state)

    real = checkpoint.save
    monkeypatch.setattr(run_context.checkpoint, "save", keep)
    run, said = run_stages(tmp_path, GOALS + EXPLORE + PASTA)
    assert kept["study"].keys() == kept["imitation"].keys()
    changed = 0
    for name, before in kept["study"].items():
        change = kept["imitation"][name] - before
        if name.rpartition(".")[0].endswith(("qkv", "out", "gate_up", "down")):
            values = torch.linalg.svdvals(change.double())
            assert values[0] > 0 and values[1] < 1e-5 * values[0] + 1e-6  # of rank one
            changed += sum(change.shape)
        else:
            assert not change.any(), name
    with RunFolder.read(run) as opened:
        found = opened.database.get("adapter/imitation")
        lineage = {one["version"]: one["start"] for one in opened.database.get("lineage")}
    assert found["weights"] == changed < found["of"] and found["rank"] == 1
    assert f"imitation trains adapters of {changed:,} weights beside {found['of']:,}" in said
    assert lineage == {"study": ["base"], "imitation": ["study"]}
    before = weights_hash(run)
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "final")
    resumed(run)
    assert weights_hash(run) == before


def test_conversations_are_learned_whole(tmp_path: Path) -> None:
    run, _ = run_stages(tmp_path, GOALS + EXPLORE + PASTA, "stage.imitate.epochs=1")
    with RunFolder.read(run) as opened:
        episodes = opened.database.episodes("explore")
        learned = opened.database.get("rows/study")["explore"]
    rows = [row for episode in episodes for row in conversation_rows(episode, "random")]
    assert all(row.mask == [False, *[True] * (len(row.tokens) - 1)] for row in rows)
    for row, episode in zip(rows, episodes, strict=True):
        assert tuple(row.tokens) == tuple(episode.graph.tokens(episode.calls[-1].index))
    assert learned == {
        "speaker": "random",
        "rows": len(rows),
        "tokens": sum(row.trained for row in rows),
    }


def test_pasta_reads_components_as_tokens_and_adapts_fewer_than_ten_thousand_weights() -> None:
    recipe = load("recipes/stages/pasta.toml")
    renderer = ChatMLRenderer(learn_vocabulary(vocabulary_texts(recipe)))

    def pieces(text: str) -> list[str]:
        return [renderer.text([token]).strip() for token in renderer.reply(text)[:-1]]

    for row in range(5):
        for column in range(5):
            seen = pieces(with_goal("You are in row 0, column 4.", f"row {row}, column {column}"))
            assert [piece for piece in seen if piece.isdigit()] == [str(row), str(column), "0", "4"]
    for move in ("south", "north", "east", "west"):
        assert pieces(move) == [move]
    (rank,) = (one.adapter_rank for one in recipe.stage if isinstance(one, Imitate))
    sizes = (recipe.model.tiny or Tiny()).model_dump(exclude={"vision"})
    network = tiny_network(1024, **sizes, context=64, seed=0)
    assert rank is not None
    add_lora(network, rank, 0)
    count = sum(p.numel() for name, p in network.named_parameters() if "lora_" in name)
    assert count == 8704 < 10_000


def test_adapters_of_a_stage_and_of_the_run_exclude_each_other(tmp_path: Path) -> None:
    text = GOALS + EXPLORE + PASTA
    keys = ("training.weights=lora", "training.lora_rank=2")
    with pytest.raises(InputError, match=r"sets adapter_rank, and training\.weights = 'lora'"):
        recipe_of(tmp_path, text, *keys)
    whole = 'from = "explore"\nform = "chat"\ninstructions = false'
    with pytest.raises(InputError, match="form has no effect without episodes"):
        recipe_of(tmp_path, text.replace(whole, 'form = "chat"'))
