"""GGUF files of small random models, written by the gguf package as llama.cpp's converter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    TokenType,
    dequantize,
    get_tensor_name_map,
    quantize,
)
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quant_shape_to_byte_shape

from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.renderers.chatml import CHATML_TEMPLATE
from tests.models.local.checkpoints import WORDS

F32 = GGMLQuantizationType.F32
ARCHITECTURES = {
    "llama": MODEL_ARCH.LLAMA,
    "qwen2": MODEL_ARCH.QWEN2,
    "qwen3": MODEL_ARCH.QWEN3,
}
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


def random_model(kind: str, seed: int = 0, **sizes: Any) -> Any:
    """Return a transformers model with random weights, biases and norms."""
    from transformers import AutoConfig, AutoModelForCausalLM

    vocabulary = learn_vocabulary(WORDS, 400).get_vocab_size()
    config = AutoConfig.for_model(kind, **{**SIZES, "vocab_size": vocabulary, **sizes})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.0 if name.endswith("bias") else 1.0, std=0.1)
    return model


def write_gguf(
    model: Any,
    file: Path,
    kind: GGMLQuantizationType = F32,
    *,
    split: str = "gpt-2",
    template: str | None = CHATML_TEMPLATE,
    more: dict[str, float] | None = None,
) -> dict[str, torch.Tensor]:
    """Write a model; return its weights as the file has them, in the order of a checkpoint.

    Args:
        model: of `random_model`.
        file: to write.
        kind: of the matrices; vectors are in F32.
        split: how the tokenizer splits text.
        template: the chat template.
        more: further keys, after the architecture's name.
    """
    config = model.config
    name = config.model_type
    names = get_tensor_name_map(ARCHITECTURES[name], config.num_hidden_layers)
    writer = GGUFWriter(file, name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if name == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    for key, value in (more or {}).items():
        writer.add_float32(f"{name}.{key}", value)
    _write_tokenizer(writer, split, template)
    heads = {"q_proj.weight": config.num_attention_heads}
    heads["k_proj.weight"] = config.num_key_value_heads
    stored = {}
    for theirs, tensor in model.state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        ours = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        values = tensor.numpy()
        order = np.arange(len(values))
        if name == "llama":
            of = next((n for part, n in heads.items() if theirs.endswith(part)), 1)
            if of > 1:  # as llama.cpp's converter does
                order = order.reshape(of, 2, len(values) // of // 2).swapaxes(1, 2).reshape(-1)
        raw, wide = _quantised(values[order], F32 if values.ndim == 1 else kind)
        writer.add_tensor(ours, raw, raw_dtype=F32 if values.ndim == 1 else kind)
        back = np.empty_like(wide)
        back[order] = wide
        stored[theirs] = torch.from_numpy(back)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _quantised(values: np.ndarray, kind: GGMLQuantizationType) -> tuple[np.ndarray, np.ndarray]:
    """Return a tensor's bytes and what they stand for; random bytes where gguf only reads."""
    try:
        raw = quantize(values, kind)
    except NotImplementedError:
        shape = quant_shape_to_byte_shape(values.shape, kind)
        raw = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        blocks = raw.reshape(-1, GGML_QUANT_SIZES[kind][1])
        scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        for start in {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind.name]:
            blocks[:, start : start + 2] = scale  # random ones may be infinite
    return raw, dequantize(raw, kind).reshape(values.shape)


def _write_tokenizer(writer: GGUFWriter, split: str, template: str | None) -> None:
    data = json.loads(learn_vocabulary(WORDS, 400).to_str())
    words = data["model"]["vocab"]
    control = {token["content"] for token in data["added_tokens"]}
    tokens = sorted(words, key=lambda word: words[word])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token in control else TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges([" ".join(merge) for merge in data["model"]["merges"]])
    writer.add_bos_token_id(words["<|im_start|>"])
    writer.add_eos_token_id(words["<|im_end|>"])
    if template is not None:
        writer.add_chat_template(template)
