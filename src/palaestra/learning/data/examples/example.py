"""Examples: training rows with a weight, and which episodes may become examples.

A row's log-probabilities are always those of the sampler, in the context in which it sampled.
Rows whose context was changed afterwards (spliced, commanded, distilled) keep them: they
measure how far the policy is from the sampler, and are not fit for importance ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.model import is_of
from palaestra.learning.data.rows import Row

Score = Callable[[Episode], float]
"""How good a scored episode was; larger is better."""
ScoreName = Literal["success", "reward", "progress"]
"""Those of `SCORES`."""


@dataclass(frozen=True, slots=True)
class Example:
    """One row to imitate."""

    row: Row
    weight: float = 1.0  # of each trained token's negative log-likelihood; not negative
    by_call: Mapping[int, float] = field(default_factory=dict)
    """Weights of single replies, by their number in the row's `calls`, in place of `weight`."""

    @property
    def advantage(self) -> list[float]:
        """Per token of the row: the advantage that turns a policy-gradient loss into this loss."""
        marked = zip(self.row.mask, self.row.calls, strict=True)
        return [self.by_call.get(call, self.weight) if on else 0.0 for on, call in marked]


def success(episode: Episode) -> float:
    """Return 1 if the task was solved, else 0."""
    return float(episode.outcome.solved)


def reward(episode: Episode) -> float:
    """Return the sum of the environment's own rewards."""
    return episode.reward


def progress(episode: Episode) -> float:
    """Return how much of the task was done at the end, in [0, 1].

    Raises:
        InputError: the environment declares no progress.
    """
    if episode.progress is None:
        raise InputError(
            f"Episode {episode.key} cannot be scored by its progress: '{episode.task.environment}' "
            "declares none; score by success or reward."
        )
    return episode.progress


def reads_progress(options: Mapping[str, Any]) -> bool:
    """Return whether the part scores episodes by their progress."""
    return bool(options["score"] == "progress")


SCORES: Mapping[str, Score] = {"success": success, "reward": reward, "progress": progress}


def scoring(score: Score | str) -> Score:
    """Return the score of that name, or the function itself.

    Raises:
        UnknownName: no such score.
    """
    if not isinstance(score, str):
        return score
    if score not in SCORES:
        raise UnknownName("score", score, SCORES)
    return SCORES[score]


def usable(episodes: Sequence[Episode], policy: str) -> list[Episode]:
    """Return the episodes with a valid result in which `policy` replied."""
    return [
        episode
        for episode in episodes
        if episode.outcome.scored and any(is_of(call.policy, policy) for call in episode.calls)
    ]


def group_of(episode: Episode) -> str:
    """Return a key that is equal for rollouts of one task from one initial state."""
    return f"{episode.key.phase}/{episode.key.group}"


def grouped(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Group the episodes, by first appearance; within a group by member."""
    found: dict[str, list[Episode]] = {}
    for episode in episodes:
        found.setdefault(group_of(episode), []).append(episode)
    return [sorted(group, key=lambda episode: episode.key.member) for group in found.values()]
