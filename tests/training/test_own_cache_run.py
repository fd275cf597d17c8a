"""A whole run with a model that mixes tokens in a manner of its own (Qwen 3.5, small)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from palaestra.models.local.tiny import learn_vocabulary
from palaestra.training.policy_building import save_tokenizer
from tests.models.local.checkpoints import WORDS
from tests.training.runs import palaestra, recorded_episodes, weights_hash, write_recipe

RECIPE = """
summary = "two steps of a small Qwen 3.5"
deterministic = true
concurrency = 4

[environment]
id = "babyai/GoToObjS4"
workers = 0

[model]
name = "{model}"
context = 512
precision = "fp32"

[imitation]
demonstrations = 8
epochs = 1

[rl]
steps = 2
tasks = 2
group = 4
learning_rate = 1e-3

[evaluation]
tasks = 2
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    folder = tmp_path_factory.mktemp("qwen")
    vocabulary = learn_vocabulary(WORDS, 400)
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=vocabulary.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        layer_types=["linear_attention", "full_attention"],
        max_position_embeddings=512,
        pad_token_id=None,
    )
    Qwen3_5ForCausalLM(config).save_pretrained(folder / "model")
    save_tokenizer(vocabulary, folder / "model")
    return write_recipe(folder, RECIPE.format(model=folder / "model"))


@pytest.mark.slow
def test_it_is_trained_and_learned_again_from_the_record(recipe: Path, tmp_path: Path) -> None:
    from transformers import Qwen3_5ForCausalLM

    planned = json.loads(palaestra("train", recipe, "--dry-run", "--json").stdout)
    assert planned["runs_by"] == "transformers, its own cache"
    done = palaestra("train", recipe, "--run", tmp_path / "a")
    assert "by transformers' own code, with its own cache, much slower" in done.stderr
    shown = palaestra("show", tmp_path / "a").stdout
    assert f"model {recipe.parent / 'model'}: runs by: transformers, its own cache" in shown
    start = Qwen3_5ForCausalLM.from_pretrained(recipe.parent / "model").state_dict()
    trained = Qwen3_5ForCausalLM.from_pretrained(tmp_path / "a" / "final").state_dict()
    assert start.keys() == trained.keys()
    assert all(torch.isfinite(tensor).all() for tensor in trained.values())
    assert any(not torch.equal(tensor, start[name]) for name, tensor in trained.items())

    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for part in ("checkpoints", "final"):
        shutil.rmtree(tmp_path / "b" / part)
    palaestra("train", "--resume", tmp_path / "b")
    assert weights_hash(tmp_path / "b") == weights_hash(tmp_path / "a")
    assert recorded_episodes(tmp_path / "b") == recorded_episodes(tmp_path / "a")
    again = palaestra("train", recipe, "--run", tmp_path / "c")
    assert "much slower" in again.stderr
    assert weights_hash(tmp_path / "c") == weights_hash(tmp_path / "a")
