"""Trajectories: what credit rules, filters and curricula see of an episode.

Numbers only: no tokens, no text, no environment. Every input that a rule could need has a
field here, filled by the environment, a critic, a judge or a probe; a rule declares
which fields it reads (`Need`), and reading one that nothing fills is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from palaestra.core.episode import Key, player_of
from palaestra.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply of the policy, and the results of its actions.

    Raises:
        InputError: it has no token, so that it cannot be credited.
    """

    tokens: int  # how many tokens were sampled, at least 1
    reward: float = 0.0  # earned at this turn, the outcome apart (see `Trajectory.outcome`)
    call: int = 0  # index of the model call in the episode
    role: str = "agent"  # who replied
    step: int = 0  # the environment step it belongs to; several roles may share one
    segment: int = 0  # which branch of the conversation (training row) it was sampled in
    valid: bool = True  # whether the environment could parse it
    anchor: str | None = None  # key of the state it was taken in; equal keys, equal states
    values: tuple[float, ...] = ()  # the critic's value before each token; empty without critic
    progress: float | None = None  # share of the task done before it, in [0, 1]
    belief: float | None = None  # probability given to the right answer after it
    contribution: float | None = None  # a progress model's estimate of what it added to the return
    advantage: float | None = None  # a critic of replies' Q of it minus V of its history
    seconds: float = 0.0  # from the request of the reply to the environment's observation

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise InputError(
                f"A turn (call {self.call}) has {self.tokens} tokens, but credit goes to tokens; "
                "leave it out, and add its reward to the turn before it."
            )


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout of one task; `turns` in the order in which they were sampled."""

    key: Key
    group: str  # equal for rollouts of one task from one initial state
    turns: tuple[Turn, ...]
    outcome: float  # reward for how the episode ended; in multi-player ones, the first player's
    task: str = ""  # family of tasks, for normalisation over families
    success: bool = False  # the task's own metric, unshaped
    truncated: bool = False  # a limit cut it off: its last state was not terminal
    bootstrap: float = 0.0  # the critic's value of the state after the last turn; 0 if terminal
    belief: float | None = None  # probability of the right answer before the first turn
    greedy: float | None = None  # return of the greedy rollout of the same task (ReMax)
    outcomes: Mapping[str, float] = field(
        default_factory=dict
    )  # by player, in multi-player rollouts: what each earned, the rewards of `turns` apart
    bootstraps: Mapping[str, float] = field(default_factory=dict)  # `bootstrap` by player, likewise
    parents: tuple[str, ...] = ()  # ids of its nodes from the root on, in a tree of samples (MALT)

    @property
    def tokens(self) -> int:
        """Sampled tokens: the length of its advantages."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def rewards(self) -> list[float]:
        """Per turn, the outcome added to the last one: they sum to `total`."""
        found = [turn.reward for turn in self.turns]
        found[-1] += self.outcome
        return found

    @property
    def total(self) -> float:
        """The undiscounted return, R in the literature."""
        return self.outcome + sum(turn.reward for turn in self.turns)

    @property
    def totals(self) -> dict[str, float]:
        """The undiscounted return of each of several players; empty for a single player."""
        found = dict(self.outcomes)
        for turn in self.turns:
            player = player_of(turn.role)
            if player in found:
                found[player] += turn.reward
        return found

    @property
    def turns_by_player(self) -> dict[str, list[int]]:
        """The positions of each player's turns, whichever of its roles replied, in order.

        A speaker that is not a player, such as a judge, has its own; with a single player that is
        every role.
        """
        found: dict[str, list[int]] = {}
        for k, turn in enumerate(self.turns):
            player = player_of(turn.role)
            found.setdefault(player if player in self.outcomes else turn.role, []).append(k)
        return found


def with_turns_filled(
    trajectories: Sequence[Trajectory],
    what: Literal["advantage", "contribution"],
    numbers: Sequence[Sequence[float]],
) -> list[Trajectory]:
    """Return the trajectories with a field of each turn filled in.

    Args:
        trajectories: of a batch.
        what: the field.
        numbers: one per turn, for each trajectory.

    Raises:
        ValueError: another number of trajectories or turns.
    """

    def filled(trajectory: Trajectory, values: Sequence[float]) -> Trajectory:
        changes: list[dict[str, Any]] = [{what: value} for value in values]
        pairs = zip(trajectory.turns, changes, strict=True)
        return replace(trajectory, turns=tuple(replace(turn, **one) for turn, one in pairs))

    return [filled(*pair) for pair in zip(trajectories, numbers, strict=True)]
