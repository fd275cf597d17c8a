"""Hugging Face checkpoints of the Llama family, to and from `DecoderNetwork`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from palaestra.core.paths import open_as_new
from palaestra.models.network import DecoderNetwork, NetworkConfig


def read_network(folder: Path, dtype: torch.dtype) -> DecoderNetwork:
    """The network of a checkpoint folder, in `dtype`."""
    from safetensors.torch import load_file

    config = NetworkConfig.read(folder)
    theirs: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        theirs.update(load_file(file))
    with torch.device("meta"):
        network = DecoderNetwork(config)
    network.load_state_dict(_from_hugging_face(theirs, config, dtype), assign=True)
    return network


def write_network(network: DecoderNetwork, folder: Path) -> None:
    """`model.safetensors` and `config.json`, as transformers reads them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    network.config.write(folder)
    tensors = {name: t.contiguous() for name, t in _to_hugging_face(network).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    open_as_new(folder / "model.safetensors")


def _from_hugging_face(
    theirs: dict[str, Tensor], config: NetworkConfig, dtype: torch.dtype
) -> dict[str, Tensor]:
    def take(name: str) -> Tensor:
        return theirs[name].to(dtype).contiguous()

    ours = {
        "embedding.weight": take("model.embed_tokens.weight"),
        "norm": take("model.norm.weight"),
    }
    if not config.tie_word_embeddings:
        ours["head.weight"] = take("lm_head.weight")
    for i in range(config.num_hidden_layers):
        a, b = f"model.layers.{i}.", f"blocks.{i}."
        ours[b + "attention_norm"] = take(a + "input_layernorm.weight")
        ours[b + "mlp_norm"] = take(a + "post_attention_layernorm.weight")
        ours[b + "out.weight"] = take(a + "self_attn.o_proj.weight")
        ours[b + "down.weight"] = take(a + "mlp.down_proj.weight")
        qkv = [take(f"{a}self_attn.{x}_proj.weight") for x in "qkv"]
        ours[b + "qkv.weight"] = torch.cat(qkv)
        gate_up = [take(f"{a}mlp.{x}_proj.weight") for x in ("gate", "up")]
        ours[b + "gate_up.weight"] = torch.cat(gate_up)
    return ours


def _to_hugging_face(network: DecoderNetwork) -> dict[str, Tensor]:
    config, ours = network.config, {k: v.detach() for k, v in network.state_dict().items()}
    d = config.head_dim
    theirs = {
        "model.embed_tokens.weight": ours["embedding.weight"],
        "model.norm.weight": ours["norm"],
    }
    if not config.tie_word_embeddings:
        theirs["lm_head.weight"] = ours["head.weight"]
    for i in range(config.num_hidden_layers):
        a, b = f"model.layers.{i}.", f"blocks.{i}."
        theirs[a + "input_layernorm.weight"] = ours[b + "attention_norm"]
        theirs[a + "post_attention_layernorm.weight"] = ours[b + "mlp_norm"]
        theirs[a + "self_attn.o_proj.weight"] = ours[b + "out.weight"]
        theirs[a + "mlp.down_proj.weight"] = ours[b + "down.weight"]
        sizes = [config.num_attention_heads * d] + 2 * [config.num_key_value_heads * d]
        for x, part in zip("qkv", ours[b + "qkv.weight"].split(sizes), strict=True):
            theirs[f"{a}self_attn.{x}_proj.weight"] = part
        for x, part in zip(("gate", "up"), ours[b + "gate_up.weight"].chunk(2), strict=True):
            theirs[f"{a}mlp.{x}_proj.weight"] = part
    return theirs
