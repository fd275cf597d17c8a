"""A memory of turns for off-policy critics: (history, reply, reward, next history, done).

A transition points into the rows of its episode, so that a long history is held once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.learning.critics.encoder import Reply, replies
from palaestra.learning.rows import Row
from palaestra.learning.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Transition:
    """One turn of the past."""

    reply: Reply  # with its history
    reward: float  # of the turn, the outcome included if it was the last
    following: Reply | None  # the next turn, whose history is the next state; None when done


def transitions(trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> list[Transition]:
    """The turns of the trajectories as a critic's memory holds them.

    The last turn of a rollout that a limit cut off is left out: it did not end there, and
    what would have followed is unknown.

    Raises:
        InputError: rows that are not the trajectories'.
    """
    found: list[Transition] = []
    for trajectory, said in zip(trajectories, replies(trajectories, rows), strict=True):
        for number, (reply, reward) in enumerate(zip(said, trajectory.rewards, strict=True)):
            last = number == len(said) - 1
            if not (last and trajectory.truncated):
                found.append(Transition(reply, reward, None if last else said[number + 1]))
    return found


class Replay:
    """The latest transitions; the oldest are forgotten first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: list[Transition] = []

    def extend(self, new: Iterable[Transition]) -> None:
        """Remember more."""
        self.items.extend(new)
        del self.items[: max(0, len(self.items) - self.capacity)]

    def state(self) -> dict[str, Tensor]:
        """The memory as tensors; each row is written once."""
        numbers: dict[int, int] = {}
        rows: list[Sequence[int]] = []

        def where(reply: Reply | None) -> tuple[int, int, int]:
            if reply is None:
                return -1, -1, -1
            number = numbers.setdefault(id(reply.row), len(rows))
            if number == len(rows):
                rows.append(reply.row)
            return number, reply.start, reply.end

        places = [where(item.reply) for item in self.items]
        following = [where(item.following) for item in self.items]
        return {
            "tokens": torch.tensor([token for row in rows for token in row], dtype=torch.int64),
            "lengths": torch.tensor([len(row) for row in rows], dtype=torch.int64),
            "replies": torch.tensor(places, dtype=torch.int64).view(-1, 3),
            "following": torch.tensor(following, dtype=torch.int64).view(-1, 3),
            "rewards": torch.tensor([item.reward for item in self.items], dtype=torch.float64),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put back what `state` gave."""
        rows = [row.tolist() for row in state["tokens"].split(state["lengths"].tolist())]

        def reply(place: list[int]) -> Reply | None:
            return None if place[0] < 0 else Reply(rows[place[0]], place[1], place[2])

        self.items = []
        for said, after, reward in zip(
            state["replies"].tolist(),
            state["following"].tolist(),
            state["rewards"].tolist(),
            strict=True,
        ):
            found = reply(said)
            assert found is not None
            self.items.append(Transition(found, reward, reply(after)))
