"""Guided sampling: a second network reads each conversation along, and changes the next logits.

It has a cache of its own, so each token of a conversation is read once, as by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.models.local.cache import KeyValueCache
from palaestra.models.local.engine_attention import rank
from palaestra.models.local.engine_pass import Chunk, EnginePass
from palaestra.models.local.network import DecoderNetwork

Change = Callable[[Tensor, Tensor], Tensor]
"""(logits [R, vocabulary] of the policy, last hidden states [R, width] of the guide) -> logits."""


class Guide:
    """A network beside the policy's, and what its states change in the policy's logits."""

    def __init__(
        self, network: DecoderNetwork, change: Change, *, memory: int, context: int, slots: int
    ) -> None:
        """Guide with weights that do not change.

        Args:
            network: reads the same tokens as the policy.
            change: of the policy's logits.
            memory: bytes for its keys and values.
            context: tokens of the longest conversation.
            slots: conversations of a pass at most.

        Raises:
            InputError: the network keeps a cache of its own, or the memory is too small.
        """
        if network.own_cache:
            raise InputError(
                "A guide's cache is the engine's, and this model keeps its own; leave out steer, "
                "or choose a model that runs over a shared cache (docs/architectures.md)."
            )
        self._network, self._change, self._slots = network, change, slots
        self._cache = KeyValueCache(network, memory=memory, context=context)
        self._forward = EnginePass(network, self._cache, slots)

    def clear(self) -> None:
        """Forget all keys and values, so that no rounding depends on earlier conversations."""
        self._cache.clear()

    def guided(self, logits: Tensor, conversations: Sequence[Sequence[int]], most: int) -> Tensor:
        """Return the changed logits of the next tokens.

        Args:
            logits: [R, vocabulary], of the policy.
            conversations: R, the tokens so far.
            most: tokens of a pass, unless one conversation alone is longer.
        """
        order = sorted(range(len(conversations)), key=lambda i: len(conversations[i]))
        found: dict[int, Tensor] = {}
        while order:
            taken = self._read({i: conversations[i] for i in order}, most)
            found |= taken
            order = [i for i in order if i not in taken]
        states = torch.stack([found[i] for i in range(len(conversations))])
        return self._change(logits, states)

    def _read(self, conversations: dict[int, Sequence[int]], most: int) -> dict[int, Tensor]:
        """Read as many conversations as fit into one pass; return their last states."""
        chunks: dict[int, Chunk] = {}
        for number, tokens in conversations.items():
            past = self._cache.acquire(tokens) if len(chunks) < self._slots else None
            if past is None:
                break
            chunks[number] = Chunk(tokens[past.length :], past)
            most -= len(chunks[number].tokens)
            if most <= 0:
                break
        order = sorted(chunks, key=lambda i: rank(chunks[i].past.length, len(chunks[i].tokens)))
        last = self._forward([chunks[i] for i in order])
        for number in order:
            self._cache.commit(chunks[number].past, chunks[number].tokens)
            self._cache.release(chunks[number].past)
        return dict(zip(order, last, strict=True))
