"""Small checkpoints of random weights: whole, in shards, and as GGUF files."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from palaestra.models.local.checkpoint_files import INDEX
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.training.policy_building import save_tokenizer

WORDS = ["go left, right, forward; pick up the key", "1 22 333"]


def small_network(seed: int = 0, vocabulary: int = 400) -> DecoderNetwork:
    return tiny_network(vocabulary, layers=2, width=32, heads=2, context=512, seed=seed)


def write_checkpoint(folder: Path, seed: int = 0) -> DecoderNetwork:
    """Write a checkpoint that speaks ChatML; return its network."""
    vocabulary = learn_vocabulary(WORDS, 400)
    network = small_network(seed, vocabulary.get_vocab_size())
    write_network(network, folder)
    save_tokenizer(vocabulary, folder)
    return network


def split(folder: Path, count: int = 2) -> list[Path]:
    """Replace `model.safetensors` by shards and an index; return the shards."""
    whole = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(whole).items()}
    whole.unlink()
    names = sorted(tensors)
    files = [folder / f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
    placed = {}
    for number, file in enumerate(files):
        part = names[number::count]
        save_file({name: tensors[name] for name in part}, file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file.name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return files


def same_weights(one: DecoderNetwork, other: DecoderNetwork) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
