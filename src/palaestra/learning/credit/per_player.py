"""Results per player: in multi-player rollouts, a rule judges each player's part separately.

One policy may play all seats of a game. What one seat wins another loses, so that a single
return for the whole rollout would credit both with the result of one of them. A rollout is
therefore split by player. Each part is a rollout of its own, with that player's turns, outcome and
group; rules compare a seat with the same seat of the group's other rollouts. All roles of a
player's agent ("white", "white/planner") are one part, in the order of their turns: they share one
return. A player who forfeits has the return that the environment states for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from palaestra.learning.credit.rule import Credit, CreditRule
from palaestra.learning.data.trajectory import Trajectory

JOINT = frozenset({"archer", "malt", "marft", "waltz"})
"""Rules that read several speakers at once, or a critic of all of them; no result per player."""


@dataclass(frozen=True, slots=True)
class Part:
    """The turns of one player in one rollout."""

    rollout: int  # position in the batch
    turns: tuple[int, ...]  # positions in the rollout
    trajectory: Trajectory  # of these turns


def parts(batch: Sequence[Trajectory]) -> list[Part]:
    """Split the batch by player; a rollout without results per player stays whole.

    A speaker that is no player and plays for none (a judge, say) is judged by the outcome of the
    rollout.
    """
    found = []
    for number, trajectory in enumerate(batch):
        if not trajectory.outcomes:
            found.append(Part(number, tuple(range(len(trajectory.turns))), trajectory))
            continue
        for player, spoken in trajectory.turns_by_player.items():
            own = replace(
                trajectory,
                group=f"{trajectory.group}/{player}",
                turns=tuple(trajectory.turns[k] for k in spoken),
                outcome=trajectory.outcomes.get(player, trajectory.outcome),
                outcomes={},
                bootstrap=trajectory.bootstraps.get(player, trajectory.bootstrap),
                parents=(),
            )
            found.append(Part(number, tuple(spoken), replace(own, success=own.total > 0)))
    return found


def per_player(
    rule: CreditRule, batch: Sequence[Trajectory], *, compares: bool, **memory: Any
) -> Credit:
    """Apply a rule to each player's part of each rollout.

    Args:
        rule: sees parts as if they were rollouts.
        batch: rollouts, at least one of them with results per player.
        compares: whether the rule needs groups; a part that is alone in its group is then left
            out and gets zeros.
        **memory: the rule's state, as `state`.
    """
    every = parts(batch)
    sizes = Counter(part.trajectory.group for part in every)
    judged = [part for part in every if not compares or sizes[part.trajectory.group] > 1]
    if not judged:
        return Credit(_joined(batch, (), (), 0.0), state=memory.get("state") or {})
    credit = rule([part.trajectory for part in judged], **memory)
    advantages = _joined(batch, judged, credit.advantages, 0.0)
    if credit.returns is None:
        return Credit(advantages, state=credit.state)
    return Credit(advantages, _joined(batch, judged, credit.returns, torch.nan), credit.state)


def _joined(
    batch: Sequence[Trajectory], judged: Sequence[Part], numbers: Sequence[Tensor], missing: float
) -> list[Tensor]:
    """Join the numbers of parts by rollout, [T_i]; `missing` where no part has any."""
    chunks = [
        [torch.full((turn.tokens,), missing, dtype=torch.float64) for turn in trajectory.turns]
        for trajectory in batch
    ]
    for part, found in zip(judged, numbers, strict=True):
        counts = [turn.tokens for turn in part.trajectory.turns]
        for turn, chunk in zip(part.turns, found.split(counts), strict=True):
            chunks[part.rollout][turn] = chunk.double()
    return [torch.cat(of_rollout) for of_rollout in chunks]
