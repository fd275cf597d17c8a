"""The key-value cache: keys and values of past tokens, in blocks of preallocated memory.

The memory is a budget: it is reserved once and never exceeded. Sequences share the blocks of common
prefixes. A request holds the blocks of its own past, and held blocks are never evicted. Blocks that
no request holds stay known (see `prefix_tree.py`) until they are needed. Sequences are found by
their tokens alone; no session needs to be named. Tokens of images have numbers of their own, see
`image_tokens`.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.models.local.image_tokens import LOWEST
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.prefix_tree import Node, PrefixTree

BLOCK = 32  # tokens per block


@dataclass(slots=True, eq=False)
class Past:
    """The keys and values that one running request holds."""

    nodes: list[Node] = field(default_factory=list)  # of the tree, from the root
    blocks: list[int] = field(default_factory=list)  # those of the nodes, then reserved ones
    length: int = 0  # tokens whose keys and values are stored
    adapter: str | None = OWN  # that computes them; None: the base alone


class KeyValueCache:
    """A cache of at most `memory` bytes of keys and values."""

    def __init__(
        self, network: DecoderNetwork, *, memory: int, context: int, block: int = BLOCK
    ) -> None:
        """Reserve the memory; on the CPU it becomes resident only as it is written.

        Args:
            network: gives the shape and type of keys and values.
            memory: the budget in bytes.
            context: tokens of the longest sequence.
            block: tokens per block.

        Raises:
            InputError: the budget does not hold one sequence of `context` tokens.
        """
        config = network.config
        self.block, self.kv_heads = block, config.num_key_value_heads
        self.share = config.num_attention_heads // config.num_key_value_heads
        shape = (config.num_key_value_heads, block, config.head_dim)
        size = 2 * config.num_hidden_layers * shape[0] * shape[1] * shape[2]
        self.block_bytes = size * network.dtype.itemsize
        self.blocks = memory // self.block_bytes
        if self.blocks * block < context:
            need = -(-context // block) * self.block_bytes
            raise InputError(
                f"A budget of {mebibytes(memory)} for keys and values holds "
                f"{self.blocks * block} tokens, less than one conversation of {context}; "
                f"give at least {mebibytes(need)}, or shorten the context."
            )
        whole = _memory(
            (2, config.num_hidden_layers, self.blocks, *shape), network.dtype, network.device
        )
        self.keys, self.values = list(whole[0]), list(whole[1])
        """Of each layer: [blocks, kv_heads, block, head_dim]."""
        self._whole = whole
        self._tree = PrefixTree(block)
        self._free: list[int] = []
        self._adapters: dict[str | None, int] = {OWN: 0}
        self._untouched = 0  # blocks from here on were never used

    @property
    def available(self) -> int:
        """Blocks that no request holds."""
        return len(self._free) + self.blocks - self._untouched + self._tree.idle

    def known(self, tokens: Sequence[int], adapter: str | None = OWN) -> int:
        """Return the number of leading tokens whose keys and values are stored."""
        return self._tree.match(self._symbols(tokens, adapter)).length

    def acquire(
        self, tokens: Sequence[int], spare: int = 0, adapter: str | None = OWN
    ) -> Past | None:
        """Hold the longest known proper prefix of `tokens`, and blocks for the rest of them.

        Args:
            tokens: at least one.
            spare: number of blocks that must be left to others.
            adapter: keys and values of one adapter are not those of another, nor of the base.

        Returns:
            None if too few blocks are available; nothing has changed then.
        """
        symbols = self._symbols(tokens[:-1], adapter)
        match = self._tree.match(symbols)  # the last token must be run to get its logits
        missing = -(-len(tokens) // self.block) - len(match.nodes)
        idle = sum(node.readers == 0 for node in match.nodes)
        if missing + spare > self.available - idle:
            return None
        self._tree.hold(match.nodes)
        past = Past(
            match.nodes, [n.block for n in match.nodes], match.length - match.shared, adapter
        )
        if match.near is not None:
            self._copy(past, match.near, match.shared)
        enough = self.reserve(past, len(tokens))
        assert enough
        return past

    def reserve(self, past: Past, length: int) -> bool:
        """Hold blocks for `length` tokens in all; return false, unchanged, if too few are free."""
        missing = -(-length // self.block) - len(past.blocks)
        if missing > self.available:
            return False
        past.blocks += [self._take() for _ in range(missing)]
        return True

    def commit(self, past: Past, tokens: Sequence[int]) -> None:
        """Record that the keys and values of `tokens` were written into the reserved blocks."""
        self._commit(past, self._symbols(tokens, past.adapter))

    def _commit(self, past: Past, symbols: Sequence[int]) -> None:
        rest = list(symbols)
        while rest:
            index, offset = divmod(past.length, self.block)
            if index == len(past.nodes):
                parent = past.nodes[-1] if past.nodes else self._tree.root
                past.nodes.append(self._tree.grow(parent, past.blocks[index]))
            part, rest = rest[: self.block - offset], rest[self.block - offset :]
            mine = past.nodes[index]
            kept = self._tree.fill(mine, part)
            if kept is not mine:  # another request filled the same block
                self._free.append(mine.block)
                past.nodes[index], past.blocks[index] = kept, kept.block
            past.length += len(part)

    def release(self, past: Past) -> None:
        """Release all blocks of a request; what it computed stays known."""
        self._free += past.blocks[len(past.nodes) :]
        self._free += self._tree.let_go(past.nodes)
        past.nodes, past.blocks, past.length = [], [], 0

    def clear(self) -> None:
        """Forget everything; requests keep the blocks they hold, but no lookup finds them."""
        self._free += self._tree.clear()

    def _symbols(self, tokens: Sequence[int], adapter: str | None) -> Sequence[int]:
        """Return what the tree knows tokens by: each adapter has numbers of its own."""
        number = self._adapters.setdefault(adapter, len(self._adapters))
        if number == 0:
            return tokens
        return [token - number * LOWEST for token in tokens]

    def _take(self) -> int:
        """Take an available block; used ones come first, because they are resident."""
        if self._free:
            return self._free.pop()
        if self._untouched < self.blocks:
            self._untouched += 1
            return self._untouched - 1
        block = self._tree.evict()
        assert block is not None
        return block

    def _copy(self, past: Past, near: Node, shared: int) -> None:
        """Start the next block with `shared` tokens of another one, if a block is available."""
        self._tree.hold([near])
        if self.available:
            block = self._take()
            for store in self._whole:
                store[:, block, :, :shared] = store[:, near.block, :, :shared]
            past.blocks.append(block)
            self._commit(past, near.tokens[:shared])
        self._free += self._tree.let_go([near])


# MAP_NORESERVE, which Python 3.13 names: else Linux refuses to fork a process with large caches.
UNRESERVED = 0x4000 if sys.platform == "linux" else 0


def _memory(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Allocate zeros; on the CPU, pages that are never written are never resident."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | UNRESERVED
    raw = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # blocks are scattered: fewer TLB misses
        with contextlib.suppress(OSError):  # a kernel without huge pages
            raw.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def mebibytes(count: int) -> str:
    """Format bytes for people."""
    return f"{count / 2**20:.1f} MiB"
