"""A chain: a sequence that shares its beginning with the one that it extends.

A conversation grows by a message or two per call. To copy it whole each time would cost
time and memory that grow with the square of the turns. The longest chain of a list is
extended by appending to that list; only a fork copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class Chain(Sequence[T]):
    """The first so many items of a list that others may append to; itself, it never changes."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._size = len(self._items)

    def extended(self, more: Iterable[T]) -> Chain[T]:
        """This chain and then `more`; costs what `more` costs unless the chain forks here."""
        longer: Chain[T] = Chain.__new__(Chain)
        forks = len(self._items) > self._size
        longer._items = self._items[: self._size] if forks else self._items
        longer._items.extend(more)
        longer._size = len(longer._items)
        return longer

    def continued(self, items: Sequence[T]) -> Chain[T] | None:
        """`items` as an extension of this chain; None unless they strictly extend it.

        The last item is replaced by its equal in `items`. Whoever grows one list, call by
        call, is therefore compared by identity: a nanosecond per item, and no copy.
        """
        size = self._size
        if len(items) <= size or (size and items[size - 1] != self._items[size - 1]):
            return None
        if size:
            self._items[size - 1] = items[size - 1]
        longer = self.extended(items[size:])
        if longer._items != (items if isinstance(items, list) else list(items)):
            del longer._items[size:]
            return None
        return longer

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(self._size)[index]
        if isinstance(places, int):
            return self._items[places]
        if places.step == 1:
            return self._items[places.start : places.stop]
        return [self._items[place] for place in places]

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
