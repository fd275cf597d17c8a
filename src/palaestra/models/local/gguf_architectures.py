"""What the metadata and the tensors of a GGUF file mean: one table entry per architecture.

Sources: the GGUF specification (keys), llama.cpp's `convert_hf_to_gguf.py` (names, and what it
does to the weights). A key or a tensor that no entry names is refused, never ignored: a trait of
the network would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.core.errors import InputError

SIZES = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "vocab_size": "vocab_size",
}
"""Keys of the metadata, after the architecture's name, and their keys in `config.json`."""

REQUIRED = (
    "context_length",
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
)
OTHERS = {"rope.freq_base", "rope.dimension_count", "attention.value_length"}
"""Keys that are read or checked by name below."""

WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names of tensors, without `blk.N.` and `.weight`, and their names in a checkpoint."""

FREQUENCIES = "rope_freqs.weight"  # divisors of the rotary frequencies, of Llama 3.1 and later
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one architecture's GGUF files are read."""

    model_type: str  # in config.json
    model_class: str  # of transformers
    paired: bool = False  # rows of queries and keys are reordered to rotate neighbours, not halves
    biases: tuple[str, ...] = ()  # tensors of a block that have a bias
    norms: Mapping[str, str] | None = None  # further tensors of a block


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", paired=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", biases=("attn_q", "attn_k", "attn_v")),
    "qwen3": Architecture(
        "qwen3",
        "Qwen3ForCausalLM",
        norms={"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"},
    ),
}
"""By `general.architecture`."""


def architecture_of(metadata: Mapping[str, Any]) -> Architecture:
    """Return the entry of a file's architecture; raise InputError if there is none."""
    name = metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        raise InputError(
            f"its architecture '{name}' is not among those read from GGUF files "
            f"({', '.join(ARCHITECTURES)}); use the model's Hugging Face checkpoint"
        )
    return ARCHITECTURES[str(name)]


def config_of(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Sequence[int]],
    frequencies: np.ndarray | None,
) -> dict[str, Any]:
    """Return the `config.json` of a file.

    Args:
        metadata: of the file, by key.
        tensors: shapes by name, as in a checkpoint.
        frequencies: the tensor `rope_freqs.weight`, shape [head_dim / 2], if the file has one.

    Raises:
        InputError: a key is missing, or one that changes the network is not known.
    """
    found, name = architecture_of(metadata), metadata["general.architecture"]
    given = {
        key.removeprefix(f"{name}."): value
        for key, value in metadata.items()
        if key.startswith(f"{name}.")
    }
    config: dict[str, Any] = {"vocab_size": tensors["model.embed_tokens.weight"][0]}
    for key, value in given.items():
        if key in SIZES and isinstance(value, int | float):
            config[SIZES[key]] = _shortest(value)
        elif key not in OTHERS and not (key == "rope.scaling.type" and value == "none"):
            raise InputError(
                f"its key '{name}.{key}' = {value!r} means a trait of the network that is not read "
                "from GGUF files; use the model's Hugging Face checkpoint"
            )
    for key in REQUIRED:
        if key not in given:
            raise InputError(f"its key '{name}.{key}' is missing; download the file again")
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    for key in ("rope.dimension_count", "attention.value_length"):
        if given.get(key, head) != head:
            raise InputError(
                f"its '{name}.{key}' is {given[key]}, not the size of a head ({head}), which is "
                "not read from GGUF files; use the model's Hugging Face checkpoint"
            )
    theta = _shortest(given.get("rope.freq_base", 10_000.0))
    rope = {"rope_type": "default", "rope_theta": theta}
    if frequencies is not None:
        rope |= _llama3(frequencies, theta)
    return {
        **config,
        "model_type": found.model_type,
        "architectures": [found.model_class],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rope_parameters": rope,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
    }


def checkpoint_name(found: Architecture, name: str) -> str:
    """Return the name in a checkpoint of the tensor `name` of a GGUF file.

    Raises:
        InputError: the architecture has no such tensor.
    """
    stem, _, kind = name.rpartition(".")
    if kind == "weight" and stem in WHOLE:
        return f"{WHOLE[stem]}.weight"
    block, _, part = stem.removeprefix("blk.").partition(".")
    known = {**BLOCK, **(found.norms or {})}
    weight = kind == "weight" or (kind == "bias" and part in found.biases)
    if not (stem.startswith("blk.") and block.isdecimal() and part in known and weight):
        raise InputError(
            f"its tensor '{name}' is not one that the architecture '{found.model_type}' has; use "
            "the model's Hugging Face checkpoint"
        )
    return f"model.layers.{block}.{known[part]}.{kind}"


def in_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Return query or key rows [heads * d, …] with each head's pairs as halves.

    A pair of rows that rotate together is (2i, 2i + 1) within a head in llama.cpp's order, and
    (i, i + d/2) in Hugging Face's.
    """
    pairs = rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _llama3(frequencies: np.ndarray, theta: float) -> dict[str, Any]:
    """Return the rotary scaling whose divisors of the frequencies are in the file."""
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    factor = round(float(frequencies.max()), 3)  # from quotients in fp32
    count = len(frequencies)
    wavelength = 2 * np.pi * theta ** (np.arange(count) / count)
    ratio = LLAMA3["original_max_position_embeddings"] / wavelength
    smooth = np.clip((ratio - low) / (high - low), 0, 1)
    expected = 1 / ((1 - smooth) / factor + smooth)
    if not np.allclose(frequencies, expected, rtol=1e-4):
        raise InputError(
            f"its tensor '{FREQUENCIES}' is not the rotary scaling of Llama 3; use the model's "
            "Hugging Face checkpoint"
        )
    return {"rope_type": "llama3", "factor": factor, **LLAMA3}


def _shortest(value: float) -> float:
    """Return a number that was widened from fp32 with the fewest digits: 1e-05, not 9.99999e-06."""
    return value if isinstance(value, int) else float(str(np.float32(value)))
