"""Control rewards: what a sceptic trains on in place of the reward, everything else being equal.

A gain that the true reward brings and a control reward does not is learned from the reward. A gain
that a fair coin brings as well is drift of the recipe (the policy sharpens, whatever the reward).

Source: Shao et al. 2025, "Spurious Rewards: Rethinking Training Signals in RLVR", arXiv 2506.10947,
which trains on random and inverted rewards; the constant one is the arm without any information.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from palaestra.core.episode import Key, derive_seed
from palaestra.learning.data.trajectory import Trajectory


class Arm(StrEnum):
    """Which reward stands in for the true one."""

    COIN = "coin"  # 1 or 0 by a fair coin for each episode, whatever happened in it
    CONSTANT = "constant"  # 1 for every episode
    INVERTED = "inverted"  # minus the true reward, turn by turn


@dataclass(frozen=True, slots=True)
class ControlReward:
    """A control reward of one run."""

    arm: Arm
    seed: int  # of the run; the coins of an episode depend on it and on the episode's key alone

    def episode_return(self, key: Key, true: float) -> float:
        """Return the undiscounted return that replaces the `true` one of the episode `key`."""
        if self.arm is Arm.INVERTED:
            return -true
        return float(self.arm is Arm.CONSTANT or self._heads(key))

    def trajectory(self, true: Trajectory) -> Trajectory:
        """Return the trajectory with other rewards; tokens, turns and states stay.

        `success` follows the rewards; `progress`, which would reveal the true course to a rule, is
        hidden.
        """
        if self.arm is Arm.INVERTED:
            return replace(
                true,
                turns=tuple(
                    replace(turn, reward=-turn.reward, progress=None) for turn in true.turns
                ),
                outcome=-true.outcome,
                success=not true.success,
                outcomes={role: -value for role, value in true.outcomes.items()},
            )
        given = self.episode_return(true.key, true.total)
        return replace(
            true,
            turns=tuple(replace(turn, reward=0.0, progress=None) for turn in true.turns),
            outcome=given,
            success=given > 0,
            outcomes=dict.fromkeys(true.outcomes, given),
        )

    def _heads(self, key: Key) -> bool:
        return bool(derive_seed("coin", self.seed, key) & 1)
