"""How much memory learning takes, and how many tokens one pass may hold.

Besides the weights, an optimiser step takes, in bytes, with T trained weights of b bytes
each, W = max(b, 4), a vocabulary of V and a pass over N tokens:

    optimiser    (W if b < W) T + W T + 2 W T: master weights, gradients, moments; divided among
                 ranks with `shard` (in deterministic runs, gradients are not)
    reference    b T, where a copy of the trained weights is kept
    families     W T for each family of tasks whose gradient is kept apart, and for their sum
    pass         2 b x the largest trained tensor: gradients not yet added to W's
                 b x the largest quantised matrix, dequantised
                 CHUNK b V + FP32_CHUNK 3 W V: logits (CHUNK 3 b V if they are capped)
                 with `shard`, W x the trained weights of two layers and of all that is in none, and
                 2 x what travels at once: gradients on their way to the ranks that keep them
    activations  N x (kept + 2 kept / layers with a gradient)
                 N x 3 b heads MOST_QUERIES: attention weights in use, or GENERAL W for 3 b
                 where attention is not plain (windows, caps on scores, sinks)

`kept` is what the backward pass needs of one token: a probe of a few tokens measures it on the
network at hand, since it depends on the architecture, on adapters and on what is frozen. A model
with its own cache and attention may keep scores of pairs of tokens: two longer probes tell what it
keeps of a token in rows as long as the context. The
two further layers are gradients in use. With activation recomputation in the backward pass
(Chen et al. 2016), only the inputs of blocks are kept, and one block at a time is complete. Where
a vision tower is trained, every token counts as one of an image: what the tower keeps for such a
token is measured likewise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.learning.compute.logprobs import CHUNK, FP32_CHUNK
from palaestra.learning.compute.shared_prefix_attention import MOST_QUERIES, RowAttention
from palaestra.learning.parallel import BUCKET
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.quantised import QuantisedLinear

SHARE = 0.5  # of the machine's (or the device's) memory that learning may take by default
CPU_PASS_TOKENS = 4096  # tokens: on processors, larger passes are no faster
PROBE = 32  # tokens
LONG_PROBE = 512  # tokens, where a model's own code attends: what it keeps may grow with the row
GENERAL = 9  # copies of attention weights that general attention makes, forward and backward
REMEDIES = "give it more memory (training.memory) or train fewer weights (top layers, LoRA)"


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that learning takes besides the weights."""

    optimiser: int  # master weights, gradients, moments; a reference policy, families' gradients
    fixed: int  # of a pass, whatever its size
    per_token: int  # of a pass
    per_token_recomputed: int  # of a pass that recomputes its blocks

    def of(self, tokens: int, *, recompute: bool = False) -> int:
        """Return the bytes of an optimiser step with passes over `tokens` tokens."""
        each = self.per_token_recomputed if recompute else self.per_token
        return self.optimiser + self.fixed + tokens * each


def needs_of(
    network: DecoderNetwork,
    parameters: Mapping[str, nn.Parameter],
    frozen: int = 0,
    *,
    reference: bool = False,
    ranks: int = 1,
    whole_gradients: bool = False,
    families: int = 0,
) -> Needs:
    """Return what training takes; the weights themselves are not read and may be on "meta".

    Args:
        network: what is trained.
        parameters: the trained ones of its weights.
        frozen: number of lowest blocks that need no gradient.
        reference: whether a copy of the trained weights is kept.
        ranks: that divide gradients and the optimiser's state.
        whole_gradients: gradients are not divided.
        families: number of task families whose gradients are kept apart; 0: none is.
    """
    optimiser = largest = 0
    for parameter in parameters.values():
        wide = max(parameter.itemsize, 4)
        size = wide * parameter.numel()
        divided = (3 if parameter.itemsize < wide else 2) * size + (not whole_gradients) * size
        optimiser += -(-divided // ranks) + whole_gradients * size + reference * parameter.nbytes
        optimiser += (families and families + 1) * size
        largest = max(largest, parameter.nbytes)
    fixed = 2 * largest
    if ranks > 1 and not whole_gradients:
        fixed += _under_way(network, parameters)
    narrow, wide = network.dtype.itemsize, network.wide_dtype.itemsize
    copies = 1 if network.config.logit_softcap is None else 3
    quantised = (m for m in network.modules() if isinstance(m, QuantisedLinear))
    dense = max((narrow * m.out_features * m.in_features for m in quantised), default=0)
    logits = network.config.vocab_size * (CHUNK * narrow * copies + FP32_CHUNK * 3 * wide)
    layers = max(1, network.depth - frozen)
    kept = _kept(network, frozen, adapter_in(parameters))
    inputs = layers * network.config.hidden_size * narrow
    plain = network.config.plain_attention(network.context)
    each = 3 * narrow if plain else GENERAL * wide
    asking = each * network.config.num_attention_heads * MOST_QUERIES
    whole = kept + 2 * kept // layers + asking + _kept_by_tower(network)
    return Needs(
        optimiser,
        fixed=fixed + dense + logits,
        per_token=whole,
        per_token_recomputed=whole if network.whole else inputs + 3 * kept // layers + asking,
    )


class MemoryBudget:
    """Plan of how learning fits into the memory that it may take."""

    def __init__(
        self,
        network: DecoderNetwork,
        parameters: Mapping[str, nn.Parameter],
        frozen: int = 0,
        memory: int | None = None,
        *,
        reference: bool = False,
        ranks: int = 1,
        whole_gradients: bool = False,
        families: int = 0,
    ) -> None:
        """Plan for one network; the other arguments are those of `needs_of`.

        Args:
            network: what is trained.
            parameters: the trained ones of its weights.
            frozen: number of lowest blocks that need no gradient.
            reference: whether a copy of the trained weights is kept.
            ranks: that divide gradients and the optimiser's state.
            whole_gradients: gradients are not divided.
            families: number of task families whose gradients are kept apart; 0: none is.
            memory: bytes that learning may take besides the weights; None means half of the
                machine's memory, or of the device's.

        Raises:
            InputError: not even a pass over one token fits.
        """
        self.needs = needs_of(
            network,
            parameters,
            frozen,
            reference=reference,
            ranks=ranks,
            whole_gradients=whole_gradients,
            families=families,
        )
        self.memory = int(SHARE * memory_of(network.device)) if memory is None else memory
        least = self.needs.of(1, recompute=True)
        if least > self.memory:
            raise InputError(
                f"Training these weights takes at least {_size(least)} besides them, and "
                f"learning may take {_size(self.memory)}; {REMEDIES}."
            )
        most = (self.memory - self.needs.of(0)) // self.needs.per_token
        self.tokens = max(1, most if network.device.type == "cuda" else min(most, CPU_PASS_TOKENS))
        """Distinct tokens that one pass should not exceed."""

    def recomputes(self, tokens: int) -> bool:
        """Return whether a pass over that many tokens has to recompute its blocks."""
        return self.needs.of(tokens) > self.memory

    def check(self, tokens: int) -> None:
        """Raise InputError if a pass over that many tokens does not fit, even recomputed."""
        if self.needs.of(tokens, recompute=True) > self.memory:
            raise self.too_long(tokens)

    def too_long(self, tokens: int) -> InputError:
        """Return the error for a row of that length, which does not fit."""
        needed = self.needs.of(tokens, recompute=self.recomputes(tokens))
        return InputError(
            f"Learning from a row of {tokens} tokens takes {_size(needed)}, but learning may take "
            f"{_size(self.memory)}; {REMEDIES}, or make episodes shorter "
            "(environment.turns, agent.max_tokens)."
        )


def _under_way(network: DecoderNetwork, parameters: Mapping[str, nn.Parameter]) -> int:
    """Return the bytes of gradients that ranks have computed and not yet divided."""
    layers: dict[int | None, int] = {}
    largest = 0
    for name, parameter in parameters.items():
        size = max(parameter.itemsize, 4) * parameter.numel()
        layer = None if network.whole else network.layer_of(name)
        layers[layer] = layers.get(layer, 0) + size
        largest = max(largest, size)
    rest = layers.pop(None, 0)
    travelling = 2 * max(largest, min(BUCKET, rest + sum(layers.values())))
    return rest + 2 * max(layers.values(), default=0) + travelling


def memory_of(device: torch.device) -> int:
    """Return the bytes of the device, or of the machine as far as this process may use it."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(physical, int(text)) if text.isdigit() else physical


def out_of_memory(error: Exception) -> bool:
    """Return whether the error means that the machine, or the device, is out of memory."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "allocate memory" in str(error)  # torch's message on processors


def adapter_in(parameters: Collection[str]) -> str | None:
    """Return the name of an adapter among trained weights; None if they are others."""
    return next((name.rpartition(".")[2] for name in parameters if "lora_" in name), None)


def _kept(network: DecoderNetwork, frozen: int, adapter: str | None) -> int:
    """Return the bytes that a backward pass needs of each token of the longest row."""
    if not network.own_cache:
        return _kept_of(network, frozen, adapter, PROBE)
    long = min(network.context, LONG_PROBE)
    half, whole = (_kept_of(network, frozen, adapter, n) for n in (-(-long // 2), long))
    growth = max(0, whole - half) / (long // 2) if long > 1 else 0.0
    return whole + int(growth * (network.context - long))


def _kept_of(network: DecoderNetwork, frozen: int, adapter: str | None, count: int) -> int:
    """Return the bytes that a backward pass needs of each token, measured on a row of `count`."""
    device = network.device
    tokens = torch.zeros(count, dtype=torch.int64, device=device)
    positions = torch.arange(count, device=device)
    attend = RowAttention([range(count)], count, device)
    with torch.no_grad():
        x = network.run(network.embed(tokens), positions, attend, last=frozen)
    x.requires_grad_()  # as after a trained embedding; adapters alone keep a little less
    with network.adapters.used(adapter) if network.adapters and adapter else nullcontext():
        held = _held(network, lambda: network.run(x, positions, attend, first=frozen))
    return max(1, -(-held // count))


def _kept_by_tower(network: DecoderNetwork) -> int:
    """Return the bytes that a backward pass needs of each token of an image besides `_kept`.

    Zero if the vision tower is not trained, and for networks without weights, where it cannot run.
    """
    if not network.sees or network.device.type == "meta":
        return 0
    from palaestra.models.local.seeing_network import SeeingNetwork, trial_image

    assert isinstance(network, SeeingNetwork)
    if not network.tower_trains:
        return 0
    image = trial_image()
    held = _held(network, lambda: network.features([image])[0])
    return -(-held // network.reader.prepare(image).tokens)


def _held(network: DecoderNetwork, compute: Callable[[], Tensor]) -> int:
    """Return the bytes that a backward pass through a computation needs, weights aside."""
    own = {p.untyped_storage()._cdata for p in network.parameters()}
    held: dict[int, torch.UntypedStorage] = {}  # kept alive, so that no address repeats

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            held[storage._cdata] = storage
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        found = compute()  # kept meanwhile: what it frees could be counted again
    del found
    return sum(storage.nbytes() for storage in held.values())


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
