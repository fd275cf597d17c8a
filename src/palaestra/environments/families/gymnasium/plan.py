"""The shortest path in a deterministic transition table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

Outcome = tuple[float, int, float, bool]  # probability, next state, reward, terminated
Table = Mapping[int, Mapping[int, Sequence[Outcome]]]


def is_certain(table: Table) -> bool:
    """Return whether each action has exactly one outcome."""
    return all(len(outcomes) == 1 for row in table.values() for outcomes in row.values())


class Plan:
    """The distance to a solved end and the next action, for each state."""

    def __init__(self, table: Table, solves: Callable[[float], bool]) -> None:
        """Search backwards from the solved ends: `solves(reward)` of the terminating action."""
        self._next: dict[int, tuple[int, int]] = {}  # state -> action, state
        self._left: dict[int, int] = {}
        into: dict[int, list[tuple[int, int]]] = {}
        queue: deque[int] = deque()
        for state, row in table.items():
            for action, ((_, after, reward, terminated),) in row.items():
                if not terminated:
                    into.setdefault(int(after), []).append((state, action))
                elif solves(reward) and state not in self._left:
                    self._left[state], self._next[state] = 1, (action, int(after))
                    queue.append(state)
        while queue:
            state = queue.popleft()
            for before, action in into.get(state, ()):
                if before not in self._left:
                    self._left[before] = self._left[state] + 1
                    self._next[before] = (action, state)
                    queue.append(before)

    def left(self, state: int) -> int | None:
        """Return the number of actions to a solved end; None if there is no path."""
        return self._left.get(state)

    def actions(self, state: int) -> list[int]:
        """Return the actions to a solved end; empty if there is no path."""
        actions = []
        for _ in range(self._left.get(state, 0)):
            action, state = self._next[state]
            actions.append(action)
        return actions
