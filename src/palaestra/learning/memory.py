"""How much memory learning takes, and how many tokens one pass may hold.

Besides the weights, an optimiser step takes, in bytes, with T trained weights of b bytes
each, W = max(b, 4), a vocabulary of V and a pass over N tokens:

    optimiser    (W if b < W) T + W T + 2 W T: masters, gradients, moments
    reference    b T, where a copy of the trained weights is kept
    pass         2 b x the largest trained tensor: gradients not yet added to W's
                 CHUNK b V + PIECE 3 W V: logits
    activations  N x (kept + 2 kept / layers with a gradient)
                 N x 3 b heads MOST_QUERIES: attention weights under way

`kept` is what the backward pass needs of one token: a probe of a few tokens counts it on the
network at hand, since it depends on the architecture, on adapters and on what is frozen. The
two further layers are gradients under way. Where blocks are computed again in the backward
pass (Chen et al. 2016), only their inputs are kept, and one block at a time is whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.learning.attention import MOST_QUERIES, RowAttention
from palaestra.learning.logprobs import CHUNK, PIECE
from palaestra.models.network import DecoderNetwork

SHARE = 0.5  # of the machine's (or the device's) memory that learning may take by default
ENOUGH = 4096  # tokens: on processors, larger passes are no faster
PROBE = 32  # tokens
REMEDIES = "give it more memory (training.memory) or train fewer weights (top layers, LoRA)"


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes besides the weights."""

    optimiser: int  # masters, gradients and moments; a copy kept as reference policy
    apart: int  # what a pass takes however small it is
    per_token: int  # of a pass
    per_token_recomputed: int  # of a pass that computes its blocks again

    def of(self, tokens: int, *, recompute: bool = False) -> int:
        """An optimiser step with passes over so many tokens."""
        each = self.per_token_recomputed if recompute else self.per_token
        return self.optimiser + self.apart + tokens * each


def needs_of(
    network: DecoderNetwork,
    parameters: Mapping[str, nn.Parameter],
    frozen: int = 0,
    *,
    reference: bool = False,
) -> Needs:
    """What training takes; the weights themselves are not looked at and may be on "meta".

    Args:
        network: what is trained.
        parameters: those of its weights that are.
        frozen: so many lowest blocks need no gradient.
        reference: whether a copy of the trained weights is kept.
    """
    optimiser = largest = 0
    for parameter in parameters.values():
        wide = max(parameter.itemsize, 4)
        copies = 4 if parameter.itemsize < wide else 3
        optimiser += copies * wide * parameter.numel() + reference * parameter.nbytes
        largest = max(largest, parameter.nbytes)
    narrow, wide = network.dtype.itemsize, network.wide_dtype.itemsize
    logits = network.config.vocab_size * (CHUNK * narrow + PIECE * 3 * wide)
    layers = max(1, len(network.blocks) - frozen)
    kept = _kept(network, frozen)
    inputs = layers * network.config.hidden_size * narrow
    asking = 3 * narrow * network.config.num_attention_heads * MOST_QUERIES
    return Needs(
        optimiser,
        apart=2 * largest + logits,
        per_token=kept + 2 * kept // layers + asking,
        per_token_recomputed=inputs + 3 * kept // layers + asking,
    )


class MemoryBudget:
    """How learning fits into so much memory."""

    def __init__(
        self,
        network: DecoderNetwork,
        parameters: Mapping[str, nn.Parameter],
        frozen: int = 0,
        memory: int | None = None,
        *,
        reference: bool = False,
    ) -> None:
        """Plan for one network; the other arguments are those of `needs_of`.

        Args:
            network: what is trained.
            parameters: those of its weights that are.
            frozen: so many lowest blocks need no gradient.
            reference: whether a copy of the trained weights is kept.
            memory: bytes that learning may take besides the weights; None means half of the
                machine's memory, or of the device's.

        Raises:
            InputError: not even a pass over one token fits.
        """
        self.needs = needs_of(network, parameters, frozen, reference=reference)
        self.memory = int(SHARE * memory_of(network.device)) if memory is None else memory
        least = self.needs.of(1, recompute=True)
        if least > self.memory:
            raise InputError(
                f"Training these weights takes at least {_size(least)} besides them, and "
                f"learning may take {_size(self.memory)}; {REMEDIES}."
            )
        most = (self.memory - self.needs.of(0)) // self.needs.per_token
        self.tokens = max(1, most if network.device.type == "cuda" else min(most, ENOUGH))
        """Distinct tokens that one pass should not exceed."""

    def recomputes(self, tokens: int) -> bool:
        """Whether a pass over so many tokens has to compute its blocks again."""
        return self.needs.of(tokens) > self.memory

    def check(self, tokens: int) -> None:
        """Raises InputError if a pass over so many tokens does not fit in any way."""
        if self.needs.of(tokens, recompute=True) > self.memory:
            raise self.too_long(tokens)

    def too_long(self, tokens: int) -> InputError:
        """What to say of a row of that length that does not fit."""
        needed = self.needs.of(tokens, recompute=self.recomputes(tokens))
        return InputError(
            f"To learn from a row of {tokens} tokens takes {_size(needed)}, more than there "
            f"is (learning may take {_size(self.memory)}); {REMEDIES}, or make episodes "
            "shorter (environment.turns, agent.max_tokens)."
        )


def memory_of(device: torch.device) -> int:
    """Bytes of the device, or of the machine as far as this process may use it."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(physical, int(text)) if text.isdigit() else physical


def out_of_memory(error: Exception) -> bool:
    """Whether it says that the machine, or the device, had no more memory to give."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "allocate memory" in str(error)  # torch's words on processors


def _kept(network: DecoderNetwork, frozen: int) -> int:
    """Bytes that a backward pass needs of each token, counted on a short row."""
    own = {p.untyped_storage()._cdata for p in network.parameters()}
    held: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no address comes twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            held[storage._cdata] = storage
        return tensor

    device = network.device
    tokens = torch.zeros(PROBE, dtype=torch.int64, device=device)
    positions = torch.arange(PROBE, device=device)
    attend = RowAttention([range(PROBE)], PROBE, device)
    with torch.no_grad():
        x = network.run(network.embed(tokens), positions, attend, last=frozen)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        # as after a trained embedding; adapters alone keep a little less
        network.run(x.requires_grad_(), positions, attend, first=frozen)
    return max(1, -(-sum(storage.nbytes() for storage in held.values()) // PROBE))


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
