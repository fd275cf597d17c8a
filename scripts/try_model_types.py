"""Try every causal language model of transformers, as a small random model, in the ways it can run.

A model runs and agrees if it loads (which compares it with its own code), and if the engine's
log-probabilities of two turns of a sampled reply are those of the model's plain pass. Types that no
small configuration below fits are counted apart: nothing is known about them.
    python scripts/try_model_types.py [TYPE …]
"""

from __future__ import annotations

import copy
import logging
import os
import sys
import warnings
from collections import Counter
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from palaestra.core.model import Sampling
from palaestra.models.local.engine import Engine
from palaestra.models.local.model_types import MODEL_TYPES
from palaestra.models.local.networks import way_of
from palaestra.models.local.own_cache_network import OwnCacheNetwork
from palaestra.models.local.transformers_network import CannotRun, TransformersNetwork

MOST = 30_000_000  # parameters of a model that is small
CLOSE = 1e-3  # of log-probabilities
SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "n_embd": 64, "d_model": 64, "embed_dim": 64, "dim": 64,
    "intermediate_size": 96, "n_inner": 96, "ffn_dim": 96, "encoder_ffn_dim": 96, "dff": 96,
    "decoder_ffn_dim": 96, "ffn_hidden_size": 96, "num_hidden_layers": 4, "n_layer": 4,
    "n_layers": 4, "num_layers": 4, "decoder_layers": 4, "encoder_layers": 4,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "decoder_attention_heads": 4, "encoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 128, "n_positions": 128, "max_seq_len": 128,
    "n_ctx": 128, "word_embed_proj_dim": 64, "attention_hidden_size": 64, "embedding_dim": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "moe_k": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "first_k_dense_replace": 1,
    "expert_ffn_hidden_size": 32, "moe_topk": 2, "zero_expert_num": 2,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "qk_head_dim": 16, "index_topk": 8, "index_n_heads": 2, "index_head_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "mamba_d_state": 8, "mamba_dt_rank": 4, "mamba_n_heads": 8,
    "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_chunk_size": 8, "mamba_num_heads": 8,
    "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "state_size": 8, "chunk_size": 8,
    "sliding_window": 16, "attention_window_size": 16, "lru_width": 64,
    "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8, "laurel_rank": 4,
    "num_kv_shared_layers": 0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FITTING: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "falcon_h1": {"mamba_d_ssm": 128},
    "bamba": {"attn_layer_indices": [1, 3]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mamba", "mlp"]},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 16},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "dots1": {"num_experts_per_tok": 2},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "zamba": {"num_hidden_layers": 12, "n_mamba_heads": 2, "attention_hidden_size": 128},
    "zamba2": {
        "attention_hidden_size": 128,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "num_mem_blocks": 1,
        "n_mamba_heads": 8,
        "mamba_headdim": 16,
        "mamba_ngroups": 2,
    },
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "bailing_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "zaya": {"num_experts_per_tok": 1},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8}},
    "mpt": {"n_heads": 4},
    "ctrl": {"n_layer": 4},
}
"""What else the small configuration of a type needs."""

ENCODERS = (
    "bert big_bird camembert data2vec-text electra ernie megatron-bert reformer rembert roberta "
    "roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl xmod"
)
"""Types that only read forward if they are told so."""


def small_config(name: str) -> Any:
    """Return the small configuration of a type; raise whatever its code raises."""
    kind = CONFIG_MAPPING[name]
    default = kind()
    text = default.get_text_config()
    inner = text is not default
    known = {key: value for key, value in SMALL.items() if settable(text, key)}
    if "qk_rope_head_dim" in known:
        known |= {"head_dim": known["qk_rope_head_dim"], "num_key_value_heads": 4}
    if name in ENCODERS.split():
        known["is_decoder"] = True
    names = ("num_experts_per_tok", "moe_k", "sliding_window", "q_lora_rank")
    known = {k: v for k, v in known.items() if k not in names or getattr(text, k, 0) is not None}
    known |= FITTING.get(name, {})
    return type(text)(**known) if inner else kind(**known)


def settable(config: Any, key: str) -> bool:
    """Return whether a configuration has a size of that name, which its makers set."""
    own = getattr(type(config), key, None)
    if isinstance(own, property):
        return own.fset is not None
    try:
        return hasattr(config, key)
    except Exception:  # sizes that differ from layer to layer
        return True


def build(name: str, attention: str | None) -> Any:
    """Return a small random model of a type; None if it is not small."""
    own: Any = AutoModelForCausalLM.from_config
    torch.manual_seed(0)
    with torch.device("meta"):
        blank = own(small_config(name))
    if sum(parameter.numel() for parameter in blank.parameters()) > MOST:
        return None
    model = own(small_config(name), attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.1)
    return model


def network_of(name: str) -> tuple[TransformersNetwork, Any] | str:
    """Return a network of a type in the first way it can run, and its model; or why not."""
    for kind, attention in ((TransformersNetwork, "eager"), (OwnCacheNetwork, None)):
        try:
            model = build(name, attention)
        except Exception as error:  # whatever a model's own code raises
            return f"no small configuration: {type(error).__name__} {error}"
        if model is None:
            return "no small configuration: too many parameters"
        try:
            return kind(copy.deepcopy(model), name), model
        except CannotRun as error:
            reason = str(error)
    return f"refused: {reason}"


@torch.no_grad()
def gap(network: TransformersNetwork, theirs: Any) -> float:
    """Return how far the engine's log-probabilities are from those of a plain pass."""
    engine = Engine(network, frozenset(), slots=2, context=64, memory=2**26)
    history = torch.randint(3, 90, (11,), generator=torch.Generator().manual_seed(1)).tolist()
    worst = 0.0
    for turn in range(2):
        request = engine.submit(history, Sampling(1.0, 6), turn)
        while request.finish is None:
            engine.step()
        start = len(history)
        history += request.completion
        logits = theirs(input_ids=torch.tensor([history]), use_cache=False).logits[0]
        lp = logits[start - 1 : -1].log_softmax(dim=-1)
        wanted = lp.gather(1, torch.tensor(request.completion)[:, None])[:, 0]
        worst = max(worst, float((wanted - torch.tensor(request.logprobs)).abs().max()))
        history += [5, 6, 7]
    return worst


def tried(name: str) -> str:
    """Return what became of a type, in words that are the same for all that fared alike."""
    if name in MODEL_TYPES:
        return "resident"
    found = network_of(name)
    if isinstance(found, str):
        return found
    network, theirs = found
    try:
        off = gap(network, theirs)
    except Exception as error:  # whatever a model's own code raises
        return f"fails in the engine: {type(error).__name__} {error}"
    if not off <= CLOSE:
        return f"differs: log-probabilities by {off:.1e} ({way_of(network)})"
    return way_of(network)


def main() -> None:
    """Try the types that were named, or all; print each and the counts."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    names = sys.argv[1:] or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    counts: Counter[str] = Counter()
    for name in names:
        found = tried(name)
        counts[found.partition(":")[0]] += 1
        print(f"{name:28}{' '.join(found.split())[:200]}", flush=True)
    print(f"\n{len(names)} types of transformers {transformers.__version__}")
    for what, count in counts.most_common():
        print(f"{count:6}  {what}")


if __name__ == "__main__":
    main()
