"""A GGUF file becomes a plain Hugging Face checkpoint, in a process of its own.

Run as `python -m palaestra.models.conversion FILE.gguf FOLDER`: torch and its threads never enter
the process that asks, and the memory of the conversion (about 1 GB) is given back when it ends.
The weights are stored in bfloat16.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(source: Path, folder: Path) -> None:
    """Write config, weights, tokenizer and chat template of `source` into `folder`."""
    import torch
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
        local_files_only=True,
    )
    model.save_pretrained(folder)

    tokenizer = AutoTokenizer.from_pretrained(
        source.parent, gguf_file=source.name, local_files_only=True
    )
    style = GGUFReader(source).fields["tokenizer.ggml.pre"].contents()
    if style == "smollm":
        # The vocabulary was trained with digits set apart; transformers drops that for GGUF files,
        # and then encodes "  12" or "\n 12" as the model never saw it.
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        )
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
