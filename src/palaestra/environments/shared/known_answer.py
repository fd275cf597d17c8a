"""A base of environments whose tasks one known action solves: it is the oracle's whole plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from palaestra.core.environment import Action
from palaestra.environments.base import Replayed


class KnownAnswer(Replayed, capabilities={"oracle", "answer"}):
    """A replayed environment that declares its right answer, and with it its oracle."""

    @abstractmethod
    def answer(self) -> Action:
        """Return the right answer."""

    def oracle(self) -> Sequence[Action]:
        self._current()
        return [] if self._over else [self.answer()]
