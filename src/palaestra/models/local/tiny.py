"""The tiny transformer: small enough to learn an environment from scratch in minutes.

The same `DecoderNetwork`, the same ChatML renderer and the same engine as for real
models, with a byte-level vocabulary learned from the environment's texts (lossless: any
text can be encoded).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch import nn

from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.renderers.chatml import END, START


def learn_vocabulary(texts: Iterable[str], size: int = 1024) -> Tokenizer:
    """Learn a byte-level BPE vocabulary (Sennrich et al. 2016) of at most `size` tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=size,
        special_tokens=[START, END],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tiny_network(
    vocabulary: int, *, layers: int, width: int, heads: int, context: int, seed: int
) -> DecoderNetwork:
    """Return a network with random weights, equal for equal seeds."""
    network = DecoderNetwork(
        NetworkConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=context,
        )
    )
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.dim() < 2:
            continue  # norms start at one
        # as in GPT-2: layers that add to the residual stream are scaled down by the depth
        residual = name.endswith(("out.weight", "down.weight"))
        std = 0.02 / (2 * layers) ** 0.5 if residual else 0.02
        nn.init.normal_(parameter, std=std, generator=generator)
    return network
