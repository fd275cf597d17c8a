"""A Hugging Face checkpoint of Llama or Qwen 2 as a GGUF file, for llama.cpp.

Matrices keep their bf16 values bit for bit, or are quantised to Q8_0; norms and biases are widened
to fp32, as llama.cpp has them. Query and key rows of Llama are reordered within each head: there,
llama.cpp rotates neighbouring pairs where Hugging Face's layout rotates halves (Su et al. 2021
leave the pairing open).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType, quantize
from torch import Tensor

from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.model_types import read_config

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
BF16, Q8_0 = GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0
VOCABULARIES = {"llama": "smollm", "qwen2": "qwen2"}  # how text is split, by architecture


def convert(folder: Path, file: Path, matrices: GGMLQuantizationType = BF16) -> Path:
    """Write `file` unless it is there; returns it."""
    if file.is_file():
        return file
    from safetensors.torch import load_file

    config = read_config(folder)
    theirs: dict[str, Tensor] = {}
    for part in sorted(folder.glob("*.safetensors")):
        theirs.update(load_file(part))
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    writer = GGUFWriter(unfinished, config.model_type)
    _describe(writer, config, matrices)
    _tokenizer(writer, folder, VOCABULARIES[config.model_type])

    def add(name: str, weight: Tensor) -> None:
        if weight.dim() == 1:
            writer.add_tensor(name, weight.float().numpy())
        else:
            raw = quantize(weight.float().numpy(), matrices)
            writer.add_tensor(name, raw, raw_dtype=matrices)

    add("token_embd.weight", theirs["model.embed_tokens.weight"])
    add("output_norm.weight", theirs["model.norm.weight"])
    if not config.tie_word_embeddings:
        add("output.weight", theirs["lm_head.weight"])
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for name, short in NAMES.items():
            for part in ("weight", "bias"):
                found = theirs.get(f"model.layers.{layer}.{name}.{part}")
                if found is None:
                    continue
                if config.model_type == "llama" and short in heads:
                    found = _paired(found, heads[short])
                add(f"blk.{layer}.{short}.{part}", found)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(unfinished, file)
    return file


def _describe(writer: GGUFWriter, config: NetworkConfig, matrices: GGMLQuantizationType) -> None:
    writer.add_file_type(
        LlamaFileType.MOSTLY_BF16 if matrices is BF16 else LlamaFileType.MOSTLY_Q8_0
    )
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.layers[0].rotary.theta)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)


def _tokenizer(writer: GGUFWriter, folder: Path, split: str) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    words: dict[str, int] = dict(data["model"]["vocab"])
    special = {token["content"] for token in data["added_tokens"] if token["special"]}
    words.update({token["content"]: token["id"] for token in data["added_tokens"]})
    tokens = sorted(words, key=lambda word: words[word])
    merges = data["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if word in special else TokenType.NORMAL for word in tokens]
    )
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    config = json.loads((folder / "config.json").read_text())
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _paired(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head from halves (i, i + d/2) to neighbours (2i, 2i + 1)."""
    halves = weight.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).reshape(weight.shape)
