"""What the tensors of a checkpoint are called, and how they lie, by `model_type`.

A weight of `network.py` is made of one or more tensors of Hugging Face's, row after row. Where a
checkpoint has one tensor for all experts, each of its entries is transposed, and the rows of gate
and up alternate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
ENDS = {"embedding.weight": (EMBEDDING,), "norm": (NORM,), "head.weight": (HEAD,)}

LAYER = {
    "attention_norm": ("input_layernorm.weight",),
    "qkv.weight": tuple(f"self_attn.{x}_proj.weight" for x in "qkv"),
    "qkv_bias": tuple(f"self_attn.{x}_proj.bias" for x in "qkv"),
    "q_norm": ("self_attn.q_norm.weight",),
    "k_norm": ("self_attn.k_norm.weight",),
    "sinks": ("self_attn.sinks",),
    "out.weight": ("self_attn.o_proj.weight",),
    "out_bias": ("self_attn.o_proj.bias",),
    "mlp_norm": ("post_attention_layernorm.weight",),
    "gate_up.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "gate_up_bias": ("mlp.gate_proj.bias", "mlp.up_proj.bias"),
    "down.weight": ("mlp.down_proj.weight",),
    "down_bias": ("mlp.down_proj.bias",),
    "mixture.router.weight": ("mlp.gate.weight",),
    "mixture.experts.*.gate_up.weight": (
        "mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight",
    ),
    "mixture.experts.*.down.weight": ("mlp.experts.*.down_proj.weight",),
    "mixture.shared.gate_up.weight": (
        "mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight",
    ),
    "mixture.shared.down.weight": ("mlp.shared_expert.down_proj.weight",),
    "mixture.shared_gate.weight": ("mlp.shared_expert_gate.weight",),
}  # fmt: skip
_AROUND = {
    "attention_after_norm": ("post_attention_layernorm.weight",),
    "mlp_norm": ("pre_feedforward_layernorm.weight",),
    "mlp_after_norm": ("post_feedforward_layernorm.weight",),
}
_FUSED = {"gate_up.weight": ("mlp.gate_up_proj.weight",)}
_STACKED = "mlp.experts."
OTHERWISE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gemma2": _AROUND,
    "gemma3_text": _AROUND,
    "olmo2": _AROUND,
    "olmo3": _AROUND,
    "phi3": _FUSED | {"qkv.weight": ("self_attn.qkv_proj.weight",)},
    "glm4": _FUSED | {
        "attention_after_norm": ("post_self_attn_layernorm.weight",),
        "mlp_after_norm": ("post_mlp_layernorm.weight",),
    },
    "mixtral": {
        "mixture.router.weight": ("block_sparse_moe.gate.weight",),
        "mixture.experts.*.gate_up.weight": (
            "block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight",
        ),
        "mixture.experts.*.down.weight": ("block_sparse_moe.experts.*.w2.weight",),
    },
    "gpt_oss": {
        "mixture.router.weight": ("mlp.router.weight",),
        "mixture.router_bias": ("mlp.router.bias",),
        "mixture.experts.*.gate_up.weight": ("mlp.experts.gate_up_proj",),
        "mixture.experts.*.gate_up_bias": ("mlp.experts.gate_up_proj_bias",),
        "mixture.experts.*.down.weight": ("mlp.experts.down_proj",),
        "mixture.experts.*.down_bias": ("mlp.experts.down_proj_bias",),
    },
}  # fmt: skip
USELESS = re.compile(r"rotary_emb\.inv_freq$")
"""Tensors of older checkpoints that hold no weights."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a weight lies in a checkpoint."""

    names: tuple[str, ...]  # of the tensors that hold its rows, one after the other
    expert: int | None = None  # which entry of a tensor of all experts


def place_of(name: str, model_type: str) -> Place:
    """Return where the weight `name` of the network lies."""
    if name in ENDS:
        return Place(ENDS[name])
    _, layer, own = name.split(".", 2)
    found = re.search(r"experts\.(\d+)\.", own)
    expert = found.group(1) if found else ""
    own = own.replace(f"experts.{expert}.", "experts.*.") if found else own
    theirs = OTHERWISE.get(model_type, {}).get(own) or LAYER[own]
    names = tuple(f"model.layers.{layer}.{x.replace('*', expert)}" for x in theirs)
    stacked = found is not None and "*" not in theirs[0]
    return Place(names, int(expert) if stacked else None)
