"""Rotary positions are those of transformers, for every scaling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.models.local.architecture import Rotary
from palaestra.models.local.model_types import read_config
from palaestra.models.local.rotary import feature_order, tables

SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
    "yarn, with all": {
        "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 16.0,
        "beta_slow": 2.0, "truncate": False, "mscale": 0.8, "mscale_all_dim": 0.5,
    },
    "yarn, with a magnitude": {
        "factor": 8.0, "original_max_position_embeddings": 64, "attention_factor": 1.3,
    },
    "longrope": {
        "original_max_position_embeddings": 64,
        "short_factor": [1 + n / 9 for n in range(16)],
        "long_factor": [1 + n / 2 for n in range(16)],
    },
}  # fmt: skip


@pytest.mark.parametrize("length", [50, 200])
@pytest.mark.parametrize("name", SCALINGS)
def test_angles_are_those_of_transformers(tmp_path: Path, name: str, length: int) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    given = {"rope_type": name.split(",")[0], "rope_theta": 5e4, **SCALINGS[name]}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=256, rope_parameters=given
    )
    config.save_pretrained(tmp_path)
    (rotary,) = {traits.rotary for traits in read_config(tmp_path).layers}
    found = tables(rotary, 32, length, context=length, like=torch.zeros(0))
    wanted = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(length)[None])
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs[0, :, :16], atol=2e-5, rtol=1e-5)


def test_features_are_reordered_only_where_pairs_lie_elsewhere() -> None:
    assert feature_order(Rotary(), 8) is None
    assert feature_order(Rotary(share=0.5), 8) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert feature_order(Rotary(interleaved=True), 8) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert feature_order(Rotary(interleaved=True, share=0.5), 8) == [0, 2, 4, 5, 1, 3, 6, 7]


def test_features_that_do_not_turn_stay_as_they_are() -> None:
    cos, sin = tables(Rotary(share=0.5), 8, 5, context=5, like=torch.zeros(0))
    assert cos.shape == sin.shape == (5, 4)
    assert (cos[:, 2:] == 1).all() and (sin[:, 2:] == 0).all()
    assert (cos[1:, :2] != 1).all()
