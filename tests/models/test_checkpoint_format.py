"""Checkpoints: what is written is what is read, here and in transformers."""

import os

import pytest
import torch

from palaestra.models.checkpoint_format import read_network, write_network
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


def test_a_read_network_can_be_trained(tmp_path):
    write_network(grouped(), tmp_path)
    network = read_network(tmp_path, torch.float32)
    assert all(p.requires_grad and not p.is_meta for p in network.parameters())
