"""A replay buffer for off-policy critics: (history, reply, reward, next history, done).

A transition points into the rows of its episode, so that a long history is held once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.learning.critics.encoder import Reply, replies
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Transition:
    """One turn of an earlier rollout."""

    reply: Reply  # with its history
    reward: float  # of the turn, the outcome included if it was the last
    following: Reply | None  # the next turn, whose history is the next state; None when done


def transitions(trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> list[Transition]:
    """Return the turns of the trajectories as a replay buffer holds them.

    The last turn of a rollout that a limit cut off is left out: the episode did not end there,
    and its next state is unknown.

    Raises:
        InputError: rows of other trajectories.
    """
    found: list[Transition] = []
    for trajectory, replied in zip(trajectories, replies(trajectories, rows), strict=True):
        for number, (reply, reward) in enumerate(zip(replied, trajectory.rewards, strict=True)):
            last = number == len(replied) - 1
            if not (last and trajectory.truncated):
                found.append(Transition(reply, reward, None if last else replied[number + 1]))
    return found


class Replay:
    """The latest transitions; the oldest are dropped first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: list[Transition] = []

    def extend(self, new: Iterable[Transition]) -> None:
        """Add transitions."""
        self.items.extend(new)
        del self.items[: max(0, len(self.items) - self.capacity)]

    def rollouts(self) -> list[list[Transition]]:
        """Return the transitions by the row that they are in: those of one rollout, mostly."""
        return [list(own) for _, own in itertools.groupby(self.items, lambda t: id(t.reply.row))]

    def state(self) -> dict[str, Tensor]:
        """Return the buffer as tensors; each row is written once."""
        numbers: dict[int, int] = {}
        rows: list[Sequence[int]] = []

        def where(reply: Reply | None) -> tuple[int, int, int]:
            if reply is None:
                return -1, -1, -1
            number = numbers.setdefault(id(reply.row), len(rows))
            if number == len(rows):
                rows.append(reply.row)
            return number, reply.start, reply.end

        spans = [where(item.reply) for item in self.items]
        following = [where(item.following) for item in self.items]
        return {
            "tokens": torch.tensor([token for row in rows for token in row], dtype=torch.int64),
            "lengths": torch.tensor([len(row) for row in rows], dtype=torch.int64),
            "replies": torch.tensor(spans, dtype=torch.int64).view(-1, 3),
            "following": torch.tensor(following, dtype=torch.int64).view(-1, 3),
            "rewards": torch.tensor([item.reward for item in self.items], dtype=torch.float64),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        rows = [row.tolist() for row in state["tokens"].split(state["lengths"].tolist())]

        def reply(span: list[int]) -> Reply | None:
            return None if span[0] < 0 else Reply(rows[span[0]], span[1], span[2])

        self.items = []
        for span, after, reward in zip(
            state["replies"].tolist(),
            state["following"].tolist(),
            state["rewards"].tolist(),
            strict=True,
        ):
            found = reply(span)
            assert found is not None
            self.items.append(Transition(found, reward, reply(after)))
