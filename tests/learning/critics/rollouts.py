"""Hand-made rollouts in tokens, and networks small enough to learn them in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.episode import Key
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.tiny import tiny_network

Replied = tuple[Sequence[int], Sequence[int], float]
"""Each turn's observation, reply and reward."""


@dataclass(frozen=True)
class Rollouts:
    """Trajectories and their rows, as a learner would hand them over."""

    trajectories: list[Trajectory]
    rows: list[Row]


def small(*, vocabulary: int = 12, context: int = 32, width: int = 32, seed: int = 0):
    """One layer of two heads."""
    network: DecoderNetwork = tiny_network(
        vocabulary, layers=1, width=width, heads=2, context=context, seed=seed
    )
    return network


def rollouts(
    episodes: Sequence[Sequence[Replied]], *, forgetful: bool = False, truncated: bool = False
) -> Rollouts:
    """One trajectory per episode.

    Args:
        episodes: their turns.
        forgetful: every turn begins a new conversation, and so a row of its own.
        truncated: a limit cut all of them off.
    """
    made = Rollouts([], [])
    for member, turns_of_member in enumerate(episodes):
        key = Key("rl/1", 0, member)
        rows: list[Row] = []
        for call, (observed, reply, _) in enumerate(turns_of_member):
            if forgetful or not rows:
                rows.append(Row(key, [], [], [], []))
            row = rows[-1]
            row.tokens.extend([*observed, *reply])
            row.mask.extend([False] * len(observed) + [True] * len(reply))
            row.logprobs.extend([0.0] * len(observed) + [-1.0] * len(reply))
            row.calls.extend([-1] * len(observed) + [call] * len(reply))
        turns = tuple(
            Turn(len(reply), reward, call=i) for i, (_, reply, reward) in enumerate(turns_of_member)
        )
        made.trajectories.append(Trajectory(key, "g", turns, 0.0, truncated=truncated))
        made.rows.extend(rows)
    return made


def equal_states(a, b) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(
        a[part].keys() == b[part].keys() and all(a[part][n].equal(b[part][n]) for n in a[part])
        for part in a
    )
