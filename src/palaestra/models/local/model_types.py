"""Which traits a model has: its `config.json`, read by the rules of its `model_type`.

`MODEL_TYPES` is the only place that knows families of models by name. Every key of a
`config.json` is read, or known not to change what is computed, or refused: a model never runs
otherwise than it was trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.models.local.architecture import (
    Activation,
    Experts,
    HeadNorm,
    LayerTraits,
    NetworkConfig,
    Rotary,
)
from palaestra.models.local.config_keys import ELSEWHERE, Keys
from palaestra.models.local.rotary_keys import read_rotary

ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
}


def _as_it_is(value: float) -> float:
    return value


KEYS: dict[str, tuple[str, Callable[[float], float]]] = {
    # key of a config.json -> the trait, and its value
    "embedding_multiplier": ("embedding_multiplier", _as_it_is),
    "residual_multiplier": ("residual_multiplier", _as_it_is),
    "attention_multiplier": ("attention_scale", _as_it_is),
    "query_pre_attn_scalar": ("attention_scale", lambda value: value**-0.5),
    "logits_scaling": ("logit_divisor", _as_it_is),
    "final_logit_softcapping": ("logit_softcap", _as_it_is),
    "attn_logit_softcapping": ("attention_softcap", _as_it_is),
    "mlp_bias": ("mlp_bias", _as_it_is),
    "qkv_bias": ("qkv_bias", _as_it_is),
    "swiglu_limit": ("clamp_limit", _as_it_is),
    "swiglu_alpha": ("clamp_sharpness", _as_it_is),
}


class Windows(StrEnum):
    """Which layers attend within `sliding_window`, where a config does not list them."""

    NONE = "none"
    ALL = "all"
    ALL_IF_USED = "all if used"  # if `use_sliding_window`
    UPPER = "upper"  # from `max_window_layers` on, if `use_sliding_window`
    UNROTATED = "unrotated"  # layers without positions, if `use_sliding_window`
    PATTERN = "pattern"  # all but every n-th


@dataclass(frozen=True, slots=True)
class ModelType:
    """How models of one type differ from Llama: what they always have, and which keys they read."""

    traits: Mapping[str, Any] = field(default_factory=dict)  # of `NetworkConfig`
    keys: Mapping[str, Any] = field(default_factory=dict)  # of `KEYS`, and their defaults
    biases: tuple[str, ...] = ("qkv_bias", "out_bias")  # what `attention_bias` stands for
    bias: bool = False  # the default of `attention_bias`
    eps: float = 1e-6
    tied: bool = False
    scaled_embedding: bool = False  # by the square root of the width
    theta: float = 10_000.0
    local_theta: float | None = None  # of layers with a window, if another one
    global_scaling: bool = False  # layers with a window have no scaled rotary positions
    rope: Mapping[str, Any] = field(default_factory=dict)  # the default of `rope_parameters`
    rotated: float = 1.0  # share of a head's features that turn
    interleaved: bool = False
    longrope: tuple[str, ...] = ("longrope",)  # names of that scaling
    windows: Windows = Windows.NONE
    window: int | None = None  # the default of `sliding_window`
    pattern: int = 0  # see `Windows.PATTERN`
    mixture: bool = False  # has experts
    normalised: bool = False  # the default of `norm_topk_prob`
    router_bias: bool = False


_NORMED_HEADS = {"head_norm": HeadNorm.HEAD}
_GEMMA = {"norm_after": True, "norm_offset": 1.0}
_OLMO = {"norm_before": False, "norm_after": True, "head_norm": HeadNorm.WHOLE}
_GPT_OSS = {"sinks": True, "activation": Activation.CLAMPED, "mlp_bias": True}
_GPT_OSS_ROPE = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": False, "original_max_position_embeddings": 4096,
}  # fmt: skip
_MULTIPLIERS = {
    "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
    "attention_multiplier": 1.0, "logits_scaling": 1.0,
}  # fmt: skip

MODEL_TYPES = {
    "llama": ModelType(keys={"mlp_bias": False}),
    "mistral": ModelType(biases=(), windows=Windows.ALL, window=4096),
    "mixtral": ModelType(
        biases=(), eps=1e-5, theta=1e6, windows=Windows.ALL, mixture=True, normalised=True
    ),
    "qwen2": ModelType({"qkv_bias": True}, biases=(), windows=Windows.UPPER, window=4096),
    "qwen2_moe": ModelType(
        keys={"qkv_bias": True}, biases=(), windows=Windows.UPPER, window=4096, mixture=True
    ),
    "qwen3": ModelType(_NORMED_HEADS, windows=Windows.UPPER, window=4096),
    "qwen3_moe": ModelType(
        _NORMED_HEADS, windows=Windows.ALL_IF_USED, window=4096, mixture=True
    ),
    "gemma2": ModelType(
        _GEMMA,
        {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
         "final_logit_softcapping": 30.0},
        tied=True, scaled_embedding=True, windows=Windows.PATTERN, window=4096, pattern=2,
    ),
    "gemma3_text": ModelType(
        _GEMMA | _NORMED_HEADS,
        {"query_pre_attn_scalar": 256, "final_logit_softcapping": None},
        tied=True, scaled_embedding=True, windows=Windows.PATTERN, window=4096, pattern=6,
        theta=1e6, local_theta=1e4, global_scaling=True,
    ),
    "smollm3": ModelType(
        keys={"mlp_bias": False}, tied=True, theta=2e6, windows=Windows.UNROTATED
    ),
    "phi3": ModelType(
        biases=(), eps=1e-5, windows=Windows.ALL, longrope=("longrope", "su", "yarn")
    ),
    "olmo2": ModelType(_OLMO, eps=1e-5),
    "olmo3": ModelType(
        _OLMO, eps=1e-5, theta=5e5, global_scaling=True,
        windows=Windows.PATTERN, window=4096, pattern=4,
    ),
    "granite": ModelType(keys={"mlp_bias": False} | _MULTIPLIERS),
    "glm4": ModelType(
        {"norm_after": True}, biases=("qkv_bias",), bias=True, eps=1.5625e-7,
        rotated=0.5, interleaved=True,
    ),
    "gpt_oss": ModelType(
        _GPT_OSS, {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}, bias=True, eps=1e-5,
        theta=150_000.0, rope=_GPT_OSS_ROPE, windows=Windows.PATTERN, window=128, pattern=2,
        mixture=True, normalised=True, router_bias=True,
    ),
}  # fmt: skip


def read_config(folder: Path) -> NetworkConfig:
    """Read the table of a checkpoint folder.

    Raises:
        InputError: a model type, a trait or a key that is not known.
    """
    source = (folder / "config.json").read_text(encoding="utf-8")
    try:
        data = json.loads(source)
        name = data.get("model_type")
    except (ValueError, AttributeError):
        raise InputError(
            f"The config.json in '{folder}' is not a JSON object; download it again."
        ) from None
    if name not in MODEL_TYPES:
        raise InputError(
            f"The model in '{folder}' is of type '{name}', and the resident model runs only "
            f"{', '.join(sorted(MODEL_TYPES))}; {ELSEWHERE}."
        )
    keys = Keys(data, folder)
    traits = _traits(keys, MODEL_TYPES[name])
    method = (keys("quantization_config") or {}).get("quant_method")
    if method not in (None, "mxfp4"):
        raise keys.refusal(f"weights quantised by {method}")
    keys.finish()
    return NetworkConfig(**traits, model_type=name, source=source)


def write_config(config: NetworkConfig, folder: Path) -> None:
    """Write a `config.json` as transformers reads it: the one read, or that of a new Llama."""
    theta = config.layers[0].rotary.theta
    data = json.loads(config.source) or {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": theta,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "head_dim": config.head_dim,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }
    for key in ("dtype", "torch_dtype", "quantization_config"):  # the tensors say it
        data.pop(key, None)
    (folder / "config.json").write_text(json.dumps(data, indent=2) + "\n")


def _traits(keys: Keys, kind: ModelType) -> dict[str, Any]:
    """Return the arguments of `NetworkConfig`."""
    heads, width = keys.required("num_attention_heads"), keys.required("hidden_size")
    head_dim = keys("head_dim") or width // heads
    found: dict[str, Any] = {
        "vocab_size": keys.required("vocab_size"),
        "hidden_size": width,
        "intermediate_size": keys.required("intermediate_size"),
        "num_hidden_layers": keys.required("num_hidden_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys("num_key_value_heads") or heads,
        "max_position_embeddings": keys.required("max_position_embeddings"),
        "rms_norm_eps": keys("rms_norm_eps", kind.eps),
        "tie_word_embeddings": keys("tie_word_embeddings", kind.tied),
        "head_dim": head_dim,
        "activation": _activation(keys),
        "embedding_multiplier": width**0.5 if kind.scaled_embedding else 1.0,
    }
    if kind.biases:
        found |= dict.fromkeys(kind.biases, keys("attention_bias", kind.bias))
    for name, default in kind.keys.items():
        trait, value = KEYS[name]
        given = keys(name, default)
        found[trait] = None if given is None else value(given)
    return {**found, "layers": tuple(_layers(keys, kind, found)), **kind.traits}


def _activation(keys: Keys) -> Activation:
    other = keys("hidden_act", "silu")
    name = keys("hidden_activation") or other
    if name not in ACTIVATIONS:
        raise keys.refusal(f"the activation '{name}'")
    return ACTIVATIONS[name]


def _layers(keys: Keys, kind: ModelType, sizes: Mapping[str, Any]) -> Iterator[LayerTraits]:
    """Yield the traits of each layer."""
    count, longest = sizes["num_hidden_layers"], sizes["max_position_embeddings"]
    unrotated = Rotary(share=0.0)
    positioned = [True] * count
    if kind.windows is Windows.UNROTATED:
        interval = keys("no_rope_layer_interval", 4)
        listed = keys("no_rope_layers") or [(n + 1) % interval for n in range(count)]
        positioned = [bool(listed[n]) for n in range(count)]
    windows = _windows(keys, kind, positioned)
    every, local = read_rotary(
        keys, theta=kind.theta, local_theta=kind.local_theta, share=kind.rotated,
        interleaved=kind.interleaved, global_scaling=kind.global_scaling, longest=longest,
        default=kind.rope, longrope=kind.longrope,
    )  # fmt: skip
    experts = _experts(keys, kind, sizes) if kind.mixture else None
    step, dense = (
        (keys("decoder_sparse_step", 1), keys("mlp_only_layers") or ()) if kind.mixture else (1, ())
    )
    for n in range(count):
        mixed = n not in dense and (n + 1) % step == 0
        rotary = local if windows[n] is not None else every
        yield LayerTraits(
            rotary if positioned[n] else unrotated, windows[n], experts if mixed else None
        )


def _windows(keys: Keys, kind: ModelType, positioned: list[bool]) -> list[int | None]:
    """Return the window of each layer."""
    count, size = len(positioned), keys("sliding_window", kind.window, null=True)
    match kind.windows:
        case Windows.NONE:
            if size:
                raise keys.refusal("the key 'sliding_window'")
            return [None] * count
        case Windows.ALL:
            return [size] * count
        case Windows.PATTERN:
            other = keys("_sliding_window_pattern", kind.pattern)
            pattern = keys("sliding_window_pattern", other)
            narrow = [(n + 1) % pattern != 0 for n in range(count)]
        case Windows.ALL_IF_USED | Windows.UPPER | Windows.UNROTATED:
            used, first = keys("use_sliding_window", False), keys("max_window_layers", 28)
            size = size if used else None
            if kind.windows is Windows.ALL_IF_USED:
                return [size] * count
            upper = kind.windows is Windows.UPPER
            narrow = [n >= first if upper else not positioned[n] for n in range(count)]
    listed = keys("layer_types") or [
        "sliding_attention" if size and one else "full_attention" for one in narrow
    ]
    for name in set(listed) - {"sliding_attention", "full_attention"}:
        raise keys.refusal(f"layers of type '{name}'")
    return [size if name == "sliding_attention" else None for name in listed]


def _experts(keys: Keys, kind: ModelType, sizes: Mapping[str, Any]) -> Experts:
    other = keys("num_local_experts")
    return Experts(
        count=keys("num_experts") or other or keys.required("num_experts"),
        chosen=keys.required("num_experts_per_tok"),
        inner=keys("moe_intermediate_size") or sizes["intermediate_size"],
        normalised=keys("norm_topk_prob", kind.normalised),
        shared=keys("shared_expert_intermediate_size", 0),
        router_bias=kind.router_bias,
    )
