"""Chains: growing sequences whose earlier states stay as they were.

A conversation grows by a message or two per call. An agent hands it to its session, which records
it, at each call; copying it each time would cost time and memory quadratic in the number of turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class Chain(Sequence[T]):
    """An immutable sequence that shares its prefix with the sequence that it extends.

    It is a prefix of a list. Extending the longest chain of a list appends to that list; only a
    fork copies.
    """

    __slots__ = ("_items", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._size = len(self._items)

    @classmethod
    def of(cls, items: Sequence[T]) -> Chain[T]:
        """Return a sequence as a chain; a chain is returned as it is."""
        return items if isinstance(items, Chain) else cls(items)

    def extended(self, more: Iterable[T]) -> Chain[T]:
        """Return this chain followed by `more`; costs O(len(more)) unless the chain forks.

        Where the list goes on with items that equal the first of `more`, they are shared. So an
        agent and the message graph extend one list, although each adds the reply.
        """
        items, size, more = self._items, self._size, list(more)
        if len(items) > size:
            shared = items[size : size + len(more)]
            if shared == more[: len(shared)]:
                del more[: len(shared)]
                size += len(shared)
            else:
                items = items[:size]
        items += more
        chain: Chain[T] = Chain.__new__(Chain)
        chain._items, chain._size = items, size + len(more)
        return chain

    def continued(self, items: Sequence[T]) -> Chain[T] | None:
        """Return `items` as an extension of this chain; None unless they strictly extend it.

        A chain that was extended from this one is returned as it is, without any comparison. For
        other sequences, the chain's last item is replaced by its equal in `items`. A caller that
        grows one list, call by call, is therefore compared by identity: a nanosecond per item, and
        no copy.
        """
        size = self._size
        if isinstance(items, Chain) and items._items is self._items:
            return items if items._size > size else None
        before = len(self._items)
        if len(items) <= size:
            return None
        if size and items[size - 1] != self._items[size - 1]:
            return None
        if size:
            self._items[size - 1] = items[size - 1]
        longer = self.extended(items[size:])
        whole = longer._items if len(longer._items) == len(longer) else longer[:]
        if whole != (items if isinstance(items, list) else list(items)):
            if longer._items is self._items:
                del self._items[before:]
            return None
        return longer

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        indices = range(self._size)[index]
        if isinstance(indices, int):
            return self._items[indices]
        if indices.step == 1:
            return self._items[indices.start : indices.stop]
        return [self._items[i] for i in indices]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"Chain({list(self)!r})"
