"""Runs with models of transformers' own code: critics, and a process that acts apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import palaestra as pa
from palaestra.core.message import user
from palaestra.models.local.scoring import ScoringModel
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.store.run_folder import RunFolder
from palaestra.training.policy_building import save_tokenizer
from tests.models.local.checkpoints import WORDS
from tests.training.test_trained_adapters import trained

CRITIC = {"algorithm": "ppo", "steps": 2}
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512},
    "opt": {
        "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 512,
    },
}  # fmt: skip


def checkpoint(folder: Path, kind: str) -> str:
    """Write a small model of random weights that speaks ChatML."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    vocabulary = learn_vocabulary(WORDS, 400)
    config = AutoConfig.for_model(kind, vocab_size=vocabulary.get_vocab_size(), **SIZES[kind])
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    save_tokenizer(vocabulary, folder)
    return str(folder)


def metrics_of(run: pa.Run) -> list[dict[str, float]]:
    with RunFolder.read(run.path) as opened:
        return [dict(values) for _, values in opened.database.metrics("rl")]


@pytest.mark.parametrize("kind", ["gpt2", pytest.param("opt", marks=pytest.mark.slow)])
@pytest.mark.parametrize("critic", ["head", "separate"])
def test_a_critic_learns_beside_them_and_is_read_back(
    kind: str, critic: str, tmp_path: Path
) -> None:
    run = trained(
        checkpoint(tmp_path / "model", kind),
        tmp_path / "run",
        rl=CRITIC | {"critic": {"kind": critic}},
        weights="full",
        lora_rank=None,
    )
    assert all(step["value_loss"] > 0 for step in metrics_of(run))
    scorer = ScoringModel("critic", run.path / "final-value")
    scores = {scorer.score([user(text)])[0] for text in ("go left", "pick up the key")}
    assert len(scores) == 2 and 0 not in scores  # a head begins at zero


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIZES)
def test_another_process_acts_with_their_weights(kind: str, tmp_path: Path) -> None:
    rl = {"actor": "process", "steps": 2, "algorithm": "grpo", "entropy": {"bonus": 0.01}}
    run = trained(
        checkpoint(tmp_path / "model", kind), tmp_path / "run", rl=rl, weights="full",
        lora_rank=None,
    )  # fmt: skip
    steps = metrics_of(run)
    assert len(steps) == 2
    assert all(step["gap_max"] < 1e-4 for step in steps)  # the actor has the learner's weights
    with RunFolder.read(run.path) as opened:
        calls = [c for n in (1, 2) for e in opened.database.episodes(f"rl/{n}") for c in e.calls]
    assert len({call.version for call in calls}) == 2
