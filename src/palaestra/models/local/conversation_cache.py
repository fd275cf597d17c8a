"""The engine's memory where a model has a cache of its own: one object for each conversation.

A recurrent state can only go on from where it is. So a copy of a conversation's cache stays, with
its tokens, where a prompt ends and where a reply ends; a prompt that begins with these tokens goes
on from a copy of the longest. What was copied is forgotten, the least recently used first, when
running conversations need the memory: all together never exceed the budget. (SGLang and vLLM keep
snapshots of hybrid models likewise; Pan et al. 2024, "Marconi".)

Interface and promises are those of `KeyValueCache` and `EnginePass`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.models.local.cache import Past, mebibytes
from palaestra.models.local.engine_pass import Chunk
from palaestra.models.local.lora import OWN

if TYPE_CHECKING:  # which imports transformers
    from palaestra.models.local.own_cache_network import OwnCacheNetwork

SPARE = 32  # tokens of memory that a starting conversation leaves to each running one
STEP_WORTH = 8  # tokens of one pass that take as long as one token by itself


@dataclass(slots=True, eq=False)
class Conversation(Past):
    """What one running request holds."""

    state: Any = None  # the model's cache object; None: nothing was read
    tokens: list[int] = field(default_factory=list)  # that were read
    prompt: int = 0  # the number of tokens after which a copy stays
    ahead: Tensor | None = None  # the hidden state of the next token: the state has read it
    hidden: Tensor | None = None  # of the last token that was read
    reserved: int = 0  # bytes
    known: bool = True  # false once the cache has been cleared: it leaves no copy


@dataclass(slots=True, eq=False)
class Snapshot:
    """A conversation's cache as it was after some tokens."""

    state: Any
    hidden: Tensor  # of the last of the tokens
    bytes: int


class ConversationCache:
    """Caches of conversations, running and remembered, within `memory` bytes."""

    def __init__(self, network: OwnCacheNetwork, *, memory: int, context: int) -> None:
        """Hold nothing yet.

        Args:
            network: says how large a cache is.
            memory: the budget in bytes.
            context: tokens of the longest conversation.

        Raises:
            InputError: the budget does not hold one conversation of `context` tokens.
        """
        self.network, self.memory = network, memory
        self._held = self._idle = 0  # bytes of running conversations, and of snapshots
        self._snapshots: OrderedDict[tuple[str | None, tuple[int, ...]], Snapshot] = OrderedDict()
        self._lengths: Counter[int] = Counter()  # of the snapshots, in tokens
        self._running: list[Conversation] = []
        need = self._size(context)
        if need > memory:
            raise InputError(
                f"A budget of {mebibytes(memory)} does not hold the cache of one conversation of "
                f"{context} tokens; give at least {mebibytes(need)}, or shorten the context."
            )

    def known(self, tokens: Sequence[int], adapter: str | None = OWN) -> int:
        """Return the number of leading tokens that need not be read again."""
        key = self._best(tokens, adapter)
        return 0 if key is None else len(key[1])

    def acquire(
        self, tokens: Sequence[int], spare: int = 0, adapter: str | None = OWN
    ) -> Past | None:
        """Hold a copy of the longest known beginning of `tokens`, and memory for the rest.

        Args:
            tokens: at least one.
            spare: number of running conversations to leave memory to.
            adapter: what one adapter has read is unknown to another, and to the base.

        Returns:
            None if too little memory is available; nothing has changed then.
        """
        need = self._size(len(tokens))
        if self._held + need + spare * SPARE * self.network.token_bytes > self.memory:
            return None
        past = Conversation(adapter=adapter, prompt=len(tokens), reserved=need)
        key = self._best(tokens, adapter)
        if key is not None:
            found = self._snapshots[key]
            self._snapshots.move_to_end(key)
        self._held += need
        self._make_room()
        if key is not None:
            kept = key in self._snapshots  # else it was forgotten, and need not be copied
            past.state = self.network.copied(found.state) if kept else found.state
            past.tokens, past.hidden = list(key[1]), found.hidden
            if len(key[1]) == len(tokens):  # the last token must be run to get its logits
                past.ahead = found.hidden
                past.tokens.pop()
        past.length = len(past.tokens)
        self._running.append(past)
        return past

    def reserve(self, past: Past, length: int) -> bool:
        """Hold memory for `length` tokens in all; return false, unchanged, if there is none."""
        assert isinstance(past, Conversation)
        more = max(0, self._size(length) - past.reserved)
        if self._held + more > self.memory:
            return False
        past.reserved += more
        self._held += more
        self._make_room()
        return True

    def commit(self, past: Past, tokens: Sequence[int]) -> None:
        """Record that `tokens` were read; at the end of a prompt, keep a copy."""
        assert isinstance(past, Conversation)
        past.tokens += tokens
        past.length = len(past.tokens)
        if past.length == past.prompt and past.known:
            self._keep(past, copied=True)

    def release(self, past: Past) -> None:
        """Release the memory of a request; its cache stays known while memory is left."""
        assert isinstance(past, Conversation)
        self._held -= past.reserved
        self._running.remove(past)
        if past.known and past.state is not None and past.ahead is None:
            self._keep(past, copied=False)
        past.state, past.reserved, past.length = None, 0, 0

    def clear(self) -> None:
        """Forget everything; requests keep what they hold, but leave no copy."""
        self._snapshots.clear()
        self._lengths.clear()
        self._idle = 0
        for past in self._running:
            past.known = False

    def _size(self, length: int) -> int:
        """Return the bytes that a conversation of `length` tokens takes."""
        return self.network.state_bytes + length * self.network.token_bytes

    def _best(
        self, tokens: Sequence[int], adapter: str | None
    ) -> tuple[str | None, tuple[int, ...]] | None:
        """Return the key of the snapshot to go on from, None if there is none."""
        whole = tuple(tokens)
        for count in sorted(self._lengths, reverse=True):
            key = (adapter, whole[:count])
            if count > len(whole) or key not in self._snapshots:
                continue
            apart = not self.network.reads_on and (len(whole) - count) * STEP_WORTH > len(whole)
            return None if apart else key  # one pass over everything is faster
        return None

    def _keep(self, past: Conversation, *, copied: bool) -> None:
        key = (past.adapter, tuple(past.tokens))
        if key in self._snapshots:
            self._snapshots.move_to_end(key)
            return
        size = self.network.size_of(past.state)
        if self._held + size > self.memory:
            return
        state = self.network.copied(past.state) if copied else past.state
        assert past.hidden is not None
        self._snapshots[key] = Snapshot(state, past.hidden, size)
        self._lengths[len(past.tokens)] += 1
        self._idle += size
        self._make_room()

    def _make_room(self) -> None:
        """Forget the least recently used snapshots until the budget is kept."""
        while self._held + self._idle > self.memory and self._snapshots:
            (_, tokens), oldest = self._snapshots.popitem(last=False)
            self._idle -= oldest.bytes
            self._lengths -= Counter([len(tokens)])  # and no zeros


class OwnCachePass:
    """Passes of the engine through a network with its own cache."""

    def __init__(self, network: OwnCacheNetwork) -> None:
        self.network = network
        self.splits = network.reads_on
        """Whether a long prompt may be read in several passes."""

    def clear(self) -> None:
        """Do nothing: nothing is prepared."""

    def __call__(self, chunks: Sequence[Chunk]) -> Tensor:
        """Read the chunks; return the hidden state [B, width] of each one's last token."""
        from palaestra.models.local.cache_states import Reading

        by_adapter: dict[str | None, list[tuple[Conversation, Reading]]] = {}
        for chunk in chunks:
            past = chunk.past
            assert isinstance(past, Conversation)
            if past.ahead is not None:
                past.ahead = None  # `hidden` is its state
                continue
            reading = Reading(past.state, past.length, chunk.tokens)
            by_adapter.setdefault(past.adapter, []).append((past, reading))
        adapters = self.network.adapters
        for name, pairs in by_adapter.items():
            readings = [reading for _, reading in pairs]
            if adapters is None or name == OWN:
                self.network.read(readings)
            else:
                with adapters.used(name):
                    self.network.read(readings)
            for past, reading in pairs:
                past.state, past.hidden = reading.state, reading.hidden
        return torch.stack([_hidden_of(chunk.past) for chunk in chunks])

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [B, vocabulary] of hidden states that the last pass returned."""
        return self.network.logits(hidden)


def _hidden_of(past: Past) -> Tensor:
    assert isinstance(past, Conversation)
    assert past.hidden is not None
    return past.hidden
