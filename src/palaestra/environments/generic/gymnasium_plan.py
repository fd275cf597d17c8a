"""The shortest way through a table of transitions in which nothing is left to chance."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

Outcome = tuple[float, int, float, bool]  # probability, next state, reward, terminated
Table = Mapping[int, Mapping[int, Sequence[Outcome]]]


def is_certain(table: Table) -> bool:
    """Whether each action has one outcome only."""
    return all(len(outcomes) == 1 for row in table.values() for outcomes in row.values())


class Plan:
    """From each state, how far it is to a solved end, and which action comes next."""

    def __init__(self, table: Table, solves: Callable[[float], bool]) -> None:
        """`solves` says of the reward of a terminating action whether that end is a solved one."""
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
        """How many actions it takes; None if there is no way."""
        return self._left.get(state)

    def way(self, state: int) -> list[int]:
        """The actions; empty if there is no way."""
        actions = []
        for _ in range(self._left.get(state, 0)):
            action, state = self._next[state]
            actions.append(action)
        return actions
