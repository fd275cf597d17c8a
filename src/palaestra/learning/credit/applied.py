"""A credit rule as training applies it: to finite numbers, per player, its result checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.learning.checks import check_credit, check_trajectories
from palaestra.learning.component import Component, Need
from palaestra.learning.credit.players import JOINT, per_player
from palaestra.learning.credit.rule import Credit
from palaestra.learning.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Applied:
    """A registered rule, or a function that somebody named, with its options."""

    part: Component
    rule: Callable[..., Credit]

    def __call__(self, batch: Sequence[Trajectory], **memory: Any) -> Credit:
        """The rule's credit; where players have results of their own, each is judged by its own.

        Args:
            batch: rollouts.
            **memory: `state`, of a rule that remembers.

        Raises:
            InputError: a number of the batch, or what the rule made of it, cannot be credited.
        """
        check_trajectories(batch)
        if self.judges_players or not any(trajectory.outcomes for trajectory in batch):
            return self._checked(batch, **memory)
        compares = Need.GROUP in self.part.needs
        return per_player(self._checked, batch, compares=compares, **memory)

    @property
    def judges_players(self) -> bool:
        """Whether the rule itself looks at several players or speakers of a rollout."""
        return Need.ROLES in self.part.needs or self.part.name in JOINT

    def _checked(self, batch: Sequence[Trajectory], **memory: Any) -> Credit:
        return check_credit(self.part.name, self.rule(batch, **memory), batch)
