"""From an episode to the one return that critic-free credit compares."""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.core.episode import Episode


@dataclass(frozen=True, slots=True)
class Shaping:
    """`success * (1 - turn_cost * turns / most_turns) - invalid_cost * invalid turns`."""

    most_turns: int
    turn_cost: float = 0.2
    invalid_cost: float = 0.05

    def episode_return(self, episode: Episode) -> float:
        """The shaped return of a scored episode (failed ones earn no success part)."""
        earned = 0.0
        if episode.outcome.solved:
            earned = 1.0 - self.turn_cost * episode.usage.turns / self.most_turns
        return earned - self.invalid_cost * episode.invalid_turns
