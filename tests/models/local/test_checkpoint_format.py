"""Checkpoints round-trip, here and in transformers."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from palaestra.core.errors import InputError
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.store import checkpoint
from tests.learning.made import grouped, tiny


@pytest.mark.parametrize("make", [tiny, grouped, lambda: grouped(tied=False)])
def test_a_network_comes_back_bit_for_bit(tmp_path, make):
    network = make()
    write_network(network, tmp_path / "new" / "folder")
    back = read_network(tmp_path / "new" / "folder", torch.float32)
    assert back.config == network.config
    theirs = back.state_dict()
    assert theirs.keys() == network.state_dict().keys()
    for name, tensor in network.state_dict().items():
        assert torch.equal(theirs[name], tensor)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002, 0o077])
def test_weights_have_the_permissions_of_their_neighbours(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_network(tiny(), tmp_path / "policy")
        checkpoint.save(tmp_path, "last", {"model": {"w": torch.zeros(3)}}, {})
    finally:
        os.umask(before)
    for folder, weights in (("policy", "model.safetensors"), ("last", "model.safetensors")):
        modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / folder).iterdir()}
        assert len(modes) == 2 and weights in modes
        assert set(modes.values()) == {0o666 & ~umask}


def test_bf16_survives_and_can_be_read_wider(tmp_path):
    network = grouped().to(torch.bfloat16)
    write_network(network, tmp_path)
    wide = read_network(tmp_path, torch.float32).state_dict()
    for name, tensor in network.state_dict().items():
        assert torch.equal(read_network(tmp_path, torch.bfloat16).state_dict()[name], tensor)
        assert torch.equal(wide[name], tensor.float())


@pytest.mark.parametrize("tied", [True, False])
def test_what_transformers_writes_is_read(tmp_path, tied):
    from transformers import LlamaForCausalLM

    network = grouped(tied=tied)
    write_network(network, tmp_path / "ours")
    LlamaForCausalLM.from_pretrained(tmp_path / "ours", dtype=torch.float32).save_pretrained(
        tmp_path / "theirs"
    )
    back = read_network(tmp_path / "theirs", torch.float32)
    assert back.config == network.config
    for name, tensor in network.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)


def edited(folder, change):
    """Return the folder of a checkpoint with other tensors."""
    write_network(grouped(), folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop("model.norm.weight"), "no tensor 'model.norm.weight'"),
        (lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(32)}), "q_proj.b"),
        (lambda t: t.update({"model.embed_tokens.weight": torch.zeros(9, 32)}), "9 x 32"),
    ],
)
def test_other_tensors_than_the_architectures_are_refused_by_name(tmp_path, change, named):
    with pytest.raises(InputError, match=named):
        read_network(edited(tmp_path, change), torch.float32)


def test_tensors_that_hold_no_weights_are_left_out(tmp_path):
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    folder = edited(tmp_path, lambda t: t.update({name: torch.zeros(4)}))
    assert read_network(folder, torch.float32).config == grouped().config


def test_a_read_network_can_be_trained(tmp_path):
    write_network(grouped(), tmp_path)
    network = read_network(tmp_path, torch.float32)
    assert all(p.requires_grad and not p.is_meta for p in network.parameters())


@pytest.mark.slow
def test_reading_a_network_does_not_import_the_compiler(tmp_path):
    write_network(grouped(tied=False), tmp_path)
    program = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from palaestra.models.local.checkpoint_format import read_network\n"
        "read_network(Path(sys.argv[1]), torch.float32)\n"
        "raise SystemExit('sympy' in sys.modules or 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 0
