"""A network that only acts holds its large matrices once, packed straight from the checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from palaestra.core.errors import InputError
from palaestra.core.model import Sampling
from palaestra.learning.compute.weight_selection import adapters, everything, top_layers
from palaestra.models.local import checkpoint_format, packed_weights
from palaestra.models.local.adapter_files import read_adapter, write_adapter
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.engine import Engine
from palaestra.models.local.kernels.matmul import native_matmul
from palaestra.models.local.lora import OWN, add_adapter, add_lora, linear_layers
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import PACKED, packs, parameters_of
from tests.learning.made import finish, grouped
from tests.models.local.test_architectures import ROWS, made

DTYPES = [torch.float32] if packs(torch.float32) else []
DTYPES += [torch.bfloat16] if native_matmul() is not None else []
pytestmark = pytest.mark.skipif(not DTYPES, reason="no products of our own here")


@pytest.fixture(autouse=True)
def small_matrices_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checkpoint_format, packed_weights):
        monkeypatch.setattr(module, "WORTHWHILE", 1)


def replies(network: DecoderNetwork) -> list[object]:
    engine = Engine(network, frozenset(), slots=8, context=100)
    asked = [engine.submit(row, Sampling(1.0, 7), seed) for seed, row in enumerate(ROWS)]
    return [(r.completion, r.logprobs) for r in finish(engine, asked)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "glm4", "mixtral"])  # glm4: rows reordered
def test_it_acts_as_one_that_could_learn_to_the_bit(
    kind: str, stored: torch.dtype, dtype: torch.dtype, tmp_path: Path
) -> None:
    made(kind).to(stored).save_pretrained(tmp_path)
    whole = read_network(tmp_path, dtype)
    acting = read_network(tmp_path, dtype, acts_only=True)
    layers = linear_layers(acting)
    assert layers.keys() == linear_layers(whole).keys()
    assert all(isinstance(layer, PACKED) for layer in layers.values())
    assert parameters_of(acting) == sum(p.numel() for p in whole.parameters())
    assert replies(acting) == replies(whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_adapter_acts_on_it_as_on_one_that_could_learn(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    made("qwen2").bfloat16().save_pretrained(tmp_path / "base")
    trained = read_network(tmp_path / "base", dtype)
    add_lora(trained, 2, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2, generator=generator)
    write_adapter(trained, OWN, tmp_path / "adapter", "base")
    acting = read_network(tmp_path / "base", dtype, acts_only=True)
    before = replies(acting)
    add_adapter(acting, OWN, read_adapter(tmp_path / "adapter", acting))
    assert replies(acting) == replies(trained) != before


def test_what_only_acts_is_neither_trained_nor_saved(tmp_path: Path) -> None:
    write_network(grouped(), tmp_path)
    acting = read_network(tmp_path, DTYPES[0], acts_only=True)
    add_lora(acting, 2, seed=0)
    for use in (everything, partial(top_layers, count=1), adapters):
        with pytest.raises(InputError, match="loaded to act only"):
            use(acting)
    with pytest.raises(InputError, match="loaded to act only"):
        write_network(acting, tmp_path / "saved")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_of_another_shape_is_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    write_network(grouped(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name][:-1].clone()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"95 x 32 numbers in .*up_proj.*means 96 x 32"):
        read_network(tmp_path, dtype, acts_only=True)
