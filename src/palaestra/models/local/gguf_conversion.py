"""Conversion of a GGUF file to a Hugging Face checkpoint, once, in a separate process.

Run as `python -m palaestra.models.local.gguf_conversion FILE.gguf FOLDER`: the calling process
never loads torch and its threads. It holds one shard of the weights at a time.

Weights in F32, F16 and BF16 stay as they are, bit for bit. Quantised ones are dequantised and
stored in bf16, whose rounding is finer than that of any quantisation.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import InputError
from palaestra.core.paths import set_default_permissions
from palaestra.models.local.gguf_architectures import (
    FREQUENCIES,
    Architecture,
    architecture_of,
    checkpoint_name,
    config_of,
    in_halves,
)
from palaestra.models.local.gguf_models import INVALID
from palaestra.models.local.gguf_tokenizer import check_tokenizer, write_tokenizer

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from torch import Tensor

SHARD = 500_000_000  # bytes of weights in memory, and in a file


def convert(source: Path, folder: Path) -> None:
    """Write config, weights, tokenizer and chat template of `source` into `folder`.

    Raises:
        InputError: the file is damaged, or has a trait that is not known.
    """
    reader = _opened(source)
    try:
        metadata = {key: field.contents() for key, field in reader.fields.items()}
        found = architecture_of(metadata)
        check_tokenizer(metadata)
        tensors = {
            checkpoint_name(found, tensor.name): tensor
            for tensor in reader.tensors
            if tensor.name != FREQUENCIES
        }
        frequencies = [tensor.data for tensor in reader.tensors if tensor.name == FREQUENCIES]
        config = config_of(
            metadata,
            {name: _shape(tensor) for name, tensor in tensors.items()},
            frequencies[0] if frequencies else None,
        )
    except InputError as error:
        raise InputError(f"The file '{source}' cannot be used: {error}.") from None
    config["dtype"] = _stored(tensors["model.embed_tokens.weight"])
    _write(folder / "config.json", config)
    stop = {key: config[key] for key in ("bos_token_id", "eos_token_id") if config[key] is not None}
    _write(folder / "generation_config.json", stop)
    _write_weights(tensors, config, found, folder)
    write_tokenizer(source, metadata, config["max_position_embeddings"], folder)


def _opened(source: Path) -> GGUFReader:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(source)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise InputError(
            f"The file '{source}' is no readable GGUF file ({error}); download it again."
        ) from error
    names = {tensor.name for tensor in reader.tensors}
    end = max((tensor.data_offset + tensor.n_bytes for tensor in reader.tensors), default=0)
    if "token_embd.weight" not in names or end > source.stat().st_size:
        raise InputError(f"The file '{source}' is incomplete; download it again.")
    return reader


def _write_weights(
    tensors: dict[str, ReaderTensor], config: dict[str, Any], found: Architecture, folder: Path
) -> None:
    """Write the weights in shards of at most `SHARD` bytes, except for larger tensors."""
    from safetensors.torch import save_file

    shards: list[list[str]] = [[]]
    room = SHARD
    for name, tensor in tensors.items():
        size = tensor.n_elements * (4 if _stored(tensor) == "float32" else 2)
        if shards[-1] and size > room:
            shards.append([])
            room = SHARD
        shards[-1].append(name)
        room -= size
    index: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        weights = {name: _weight(name, tensors[name], config, found) for name in names}
        save_file(weights, folder / file, metadata={"format": "pt"})
        set_default_permissions(folder / file)
        index |= dict.fromkeys(names, file)
    if len(shards) > 1:
        _write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": index})


def _weight(name: str, tensor: ReaderTensor, config: dict[str, Any], found: Architecture) -> Tensor:
    """Return a tensor in the number format and the order of rows of a checkpoint."""
    import torch
    from gguf import dequantize

    try:
        wide = dequantize(tensor.data, tensor.tensor_type).reshape(_shape(tensor))
    except NotImplementedError as error:
        raise InputError(
            f"The tensor '{tensor.name}' is quantised as {tensor.tensor_type.name}, which the "
            "package gguf does not read; use a file with another quantisation."
        ) from error
    if found.paired and name.endswith("self_attn.q_proj.weight"):
        wide = in_halves(wide, config["num_attention_heads"])
    if found.paired and name.endswith("self_attn.k_proj.weight"):
        wide = in_halves(wide, config["num_key_value_heads"])
    return torch.tensor(wide).to(getattr(torch, _stored(tensor)))


def _stored(tensor: ReaderTensor) -> str:
    """Return the number format in which a tensor is stored in the checkpoint."""
    return {"F32": "float32", "F16": "float16"}.get(tensor.tensor_type.name, "bfloat16")


def _shape(tensor: ReaderTensor) -> list[int]:
    """Return the shape in the order of a checkpoint; GGUF counts the fastest axis first."""
    return [int(size) for size in reversed(tensor.shape)]


def _write(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except InputError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(INVALID)
