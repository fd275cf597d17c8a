"""Experts in MXFP4, as gpt-oss is published, against the conversion of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from palaestra.core.errors import InputError
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.mxfp4 import BLOCKS, SCALES, dequantised
from tests.models.local.test_architectures import ROWS, logits_of, made

WIDTH = 64  # blocks are of 32 numbers


def packed(generator: torch.Generator, experts: int, rows: int, width: int) -> tuple[Tensor, ...]:
    """Return blocks and scales at random, of numbers around 0.1."""
    shape = (experts, rows, width // 32)
    blocks = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
    return blocks, torch.randint(121, 125, shape, generator=generator, dtype=torch.uint8)


@pytest.fixture
def published(tmp_path: Path) -> tuple[Any, Path]:
    """Return transformers' model with dequantised experts, and a folder as it is published."""
    model = made("gpt_oss", hidden_size=WIDTH, intermediate_size=WIDTH).bfloat16()
    folder = tmp_path / "published"
    model.save_pretrained(folder)
    tensors, generator = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(0)
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inner, rows = tensors.pop(name).shape
        blocks, scales = packed(generator, experts, rows, inner)
        tensors |= {name + BLOCKS: blocks, name + SCALES: scales}
        model.get_parameter(name).data = convert_moe_packed_tensors(blocks, scales)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return model, folder


def test_every_value_and_scale_is_that_of_transformers() -> None:
    blocks = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 1, 16).repeat(1, 1, 10, 1)
    scales = torch.arange(0, 160, dtype=torch.uint8).reshape(1, 16, 10) + 40
    theirs = convert_moe_packed_tensors(blocks, scales)[0].T
    assert torch.equal(dequantised(blocks[0], scales[0]), theirs)
    assert (
        len(set(dequantised(blocks[0, :, :1], scales[0, :, :1] * 0 + 127).flatten().tolist())) == 15
    )


def test_it_acts_as_the_plain_numbers_that_it_is_saved_as(
    published: tuple[Any, Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    theirs, folder = published
    saved = tmp_path / "saved"
    write_network(read_network(folder, torch.bfloat16), saved)
    wanted = theirs.state_dict()
    for name, tensor in AutoModelForCausalLM.from_pretrained(saved).state_dict().items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, wanted[name])
    wide = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32).eval()
    ours = read_network(folder, torch.float32)
    with torch.no_grad():
        for row, found in zip(ROWS, logits_of(ours, ROWS), strict=True):
            logits = wide(torch.tensor([row])).logits[0]
            torch.testing.assert_close(found, logits, atol=1e-4, rtol=1e-4)


def test_scales_without_blocks_are_refused(published: tuple[Any, Path]) -> None:
    _, folder = published
    tensors = load_file(folder / "model.safetensors")
    del tensors[next(name for name in tensors if name.endswith(BLOCKS))]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"has no tensor 'model\.layers\.0\.mlp\.experts"):
        read_network(folder, torch.bfloat16)
