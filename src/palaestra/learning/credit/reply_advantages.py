"""Advantages of replies, as a critic of replies that learns beside the policy estimates them."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.errors import InputError
from palaestra.learning.credit.rule import Credit, per_token
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component


@component(
    Kind.CREDIT,
    "archer",
    source="Zhou et al. 2024 (ArCHer); the authors' release, without its token baseline",
    status=Status.RELEASE,
    needs=[Need.ACTION_VALUE],
)
def archer(batch: Sequence[Trajectory]) -> Credit:
    """The critic's Q of a reply minus V of its history, for each token of the reply.

    The critic has learned from all rollouts so far, see `learning.critics.archer`.

    Raises:
        InputError: an advantage is missing.
    """
    return Credit([per_token(t, _advantages(t)) for t in batch])


def _advantages(trajectory: Trajectory) -> list[float]:
    found = []
    for k, turn in enumerate(trajectory.turns):
        if turn.advantage is None:
            raise InputError(
                f"archer needs a critic's advantage of each reply, but turn {k} of "
                f"{trajectory.key} has none; fill it in, or choose return_to_go."
            )
        found.append(turn.advantage)
    return found
