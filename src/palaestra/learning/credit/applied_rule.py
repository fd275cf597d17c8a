"""A credit rule as training applies it: to finite numbers, per player, with a checked result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.learning.credit.per_player import JOINT, per_player
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.checks import check_credit, check_trajectories
from palaestra.learning.methods.component import Component, Need


@dataclass(frozen=True, slots=True)
class Applied:
    """A registered rule, or a function given by name, with its options."""

    part: Component
    rule: Callable[..., Credit]

    def __call__(self, batch: Sequence[Trajectory], **memory: Any) -> Credit:
        """Return the rule's credit; where players have their own results, judge each by its own.

        Args:
            batch: rollouts.
            **memory: `state`, for a rule with a state.

        Raises:
            InputError: a number of the batch, or of the rule's result, cannot be credited.
        """
        check_trajectories(batch)
        if self.judges_players or not any(trajectory.outcomes for trajectory in batch):
            return self._checked(batch, **memory)
        compares = Need.GROUP in self.part.needs
        return per_player(self._checked, batch, compares=compares, **memory)

    @property
    def judges_players(self) -> bool:
        """Whether the rule itself reads several players or speakers of a rollout."""
        return Need.ROLES in self.part.needs or self.part.name in JOINT

    def _checked(self, batch: Sequence[Trajectory], **memory: Any) -> Credit:
        return check_credit(self.part.name, self.rule(batch, **memory), batch)
