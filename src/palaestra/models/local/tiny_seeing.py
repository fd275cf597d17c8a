"""The tiny model that sees: an Idefics3 (SmolVLM's architecture) small enough to learn in minutes.

A vision tower of a few layers reads an image in patches; blocks of `merge` x `merge` of their
vectors become one each (pixel shuffle), and stand among the tokens of a tiny language model. It is
written as a checkpoint that transformers reads, and runs by transformers' code like any other model
that sees.

Source: Laurençon et al. 2024 (Idefics3); Marafioti et al. 2025 (SmolVLM).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from palaestra.models.local.image_reader import image_reader
from palaestra.models.local.seeing_network import SeeingNetwork
from palaestra.models.renderers.chatml import END

IMAGE, AROUND, GLOBAL = "<image>", "<fake_token_around_image>", "<global-img>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}"
    f"{{% if part.type == 'image' %}}{IMAGE}{{% else %}}{{{{ part.text }}}}{{% endif %}}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML whose contents are lists of texts and images."""


class Sizes(NamedTuple):
    """Sizes of the language model."""

    layers: int
    width: int
    heads: int
    context: int


class Sight(NamedTuple):
    """Sizes of the vision tower."""

    side: int  # pixels of an image's longer side, after scaling
    patch: int  # pixels of a patch's side
    merge: int  # patches of a block's side that become one token
    layers: int
    width: int
    heads: int


def write_tiny_seeing(folder: Path, vocabulary: Tokenizer, sizes: Sizes, sight: Sight) -> None:
    """Write the configuration, the tokenizer and the processor; weights come with `tiny_seeing`."""
    from transformers import Idefics3Config, Idefics3Processor, PreTrainedTokenizerFast
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=vocabulary,
        eos_token=END,
        additional_special_tokens=[AROUND, IMAGE, GLOBAL],
    )
    edge = {"longest_edge": sight.side}
    pixels = Idefics3ImageProcessorPil(do_image_splitting=False, size=edge, max_image_size=edge)
    length = (sight.side // sight.patch // sight.merge) ** 2
    processor = Idefics3Processor(pixels, tokenizer, image_seq_len=length, chat_template=TEMPLATE)
    text = {
        "model_type": "llama",
        "vocab_size": len(tokenizer),
        "hidden_size": sizes.width,
        "intermediate_size": 3 * sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads,
        "max_position_embeddings": sizes.context,
        "pad_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.eos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    tower = {
        "hidden_size": sight.width,
        "intermediate_size": 3 * sight.width,
        "num_hidden_layers": sight.layers,
        "num_attention_heads": sight.heads,
        "image_size": sight.side,
        "patch_size": sight.patch,
    }
    make: Any = Idefics3Config
    config = make(
        image_token_id=processor.image_token_id,
        scale_factor=sight.merge,
        text_config=text,
        vision_config=tower,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.eos_token_id,
        architectures=["Idefics3ForConditionalGeneration"],
    )
    processor.save_pretrained(folder)
    config.save_pretrained(folder)
    _say_what_reads_it(folder)


def tiny_seeing(folder: Path, seed: int) -> SeeingNetwork:
    """Return a network of the sizes in `folder`; equal seeds give equal weights."""
    from transformers import AutoConfig, Idefics3ForConditionalGeneration

    config: Any = AutoConfig.from_pretrained(folder)
    model = Idefics3ForConditionalGeneration._from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    )
    generator = torch.Generator().manual_seed(seed)
    layers = config.text_config.num_hidden_layers
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            nn.init.constant_(parameter, float(name.endswith("weight")))  # norms one, biases zero
            continue
        # as in GPT-2: layers that add to the residual stream are scaled down by the depth
        residual = name.endswith(("o_proj.weight", "down_proj.weight", "out_proj.weight"))
        std = 0.02 / (2 * layers) ** 0.5 if residual else 0.02
        nn.init.normal_(parameter, std=std, generator=generator)
    return SeeingNetwork(model, image_reader(folder), folder)


def _say_what_reads_it(folder: Path) -> None:
    """Name the tokenizer's class by its older name, which earlier transformers read too."""
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
