"""A base for environments in which several players act at the same time.

Moves reach an environment one at a time, in the order of `acting`, so that each is one step of the
record, whatever the order in which the players decide. A move stays pending, and unseen by the
others, until all players of the round have moved; then the round is played. Pending moves are part
of state keys and snapshots.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.environments.base import hashed, refused
from palaestra.environments.snapshots import opened, sealed

OVER = "It is over."


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round."""

    rewards: Mapping[str, float]  # of every player
    success: bool = False  # the first player's, or all players', at the end; see `Spec.players`
    truncated: bool = False  # a limit ended the episode


class Simultaneous(Environment):
    """An environment whose players act at the same time.

    Write `begin`, `movers`, `play` and `observe`, and declare the players:

        class Pennies(Simultaneous, players=("even", "odd"), stakes=Stakes("zero-sum")): ...
    """

    VERSION = "1"  # of `save_round`; a snapshot of another version is refused

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._pending: dict[str, Action] = {}  # moves of this round, by player
        self._begun = False

    @abstractmethod
    def begin(self, task: Task) -> None:
        """Start a task. Equal tasks give equal states."""

    @abstractmethod
    def movers(self) -> Sequence[str]:
        """Return the players that act in this round, in the order of `players`; none at the end."""

    @abstractmethod
    def play(self, moves: Mapping[str, Action]) -> Round:
        """Play a round with the moves of all its movers; their order must not matter."""

    @abstractmethod
    def observe(self, player: str) -> Observation:
        """Return what a player sees now; it must not depend on pending moves."""

    def refusal(self, player: str, action: Action) -> str | None:
        """Return why an action is no move of a player now; None: it is one."""
        return None

    def save_round(self) -> bytes:
        """Return the state between rounds, for `state_key` and `snapshot`.

        Equal states give equal bytes.
        """
        self._undeclared(Capability.SNAPSHOT)

    def load_round(self, state: bytes) -> None:
        """Restore what `save_round` returned."""
        self._undeclared(Capability.SNAPSHOT)

    def reset(self, task: Task) -> Observation:
        self._pending, self._begun = {}, True
        self.begin(task)
        return self.observe(self.movers()[0])

    def acting(self) -> tuple[str, ...]:
        return tuple(self.movers()[len(self._pending) :])  # they move in this order

    def step(self, action: Action) -> Transition:
        if not self._begun:
            raise InputError(
                f"The environment '{self.spec.id}' has no task yet; call reset with a task first."
            )
        acting = self.acting()
        if not acting:
            return refused(OVER)
        player, *rest = acting
        reason = self.refusal(player, action)
        if reason is not None:
            return refused(reason)
        self._pending[player] = action
        if rest:
            return Transition(self.observe(rest[0]))
        moves, self._pending = self._pending, {}
        played = self.play(moves)
        movers = self.movers()
        return Transition(
            self.observe(movers[0] if movers else player),
            reward=played.rewards[player],
            terminated=not movers and not played.truncated,
            truncated=played.truncated,
            success=played.success,
            rewards=dict(played.rewards),
        )

    def state_key(self) -> str:
        if Capability.STATE_KEY not in self.spec.capabilities:
            self._undeclared(Capability.STATE_KEY)
        return hashed(self.spec.name, self.save_round(), sorted(self._pending.items()))

    def snapshot(self) -> bytes:
        if Capability.SNAPSHOT not in self.spec.capabilities:
            self._undeclared(Capability.SNAPSHOT)
        pending = {player: asdict(action) for player, action in self._pending.items()}
        head = json.dumps([pending, self._begun]).encode()
        return sealed(self._label, self.VERSION, head + b"\n" + self.save_round())

    def restore(self, snapshot: bytes) -> None:
        """Restore a state with its pending moves; raise InputError for a foreign snapshot."""
        if Capability.SNAPSHOT not in self.spec.capabilities:
            self._undeclared(Capability.SNAPSHOT)
        head, _, state = opened(snapshot, self._label, self.VERSION).partition(b"\n")
        pending, self._begun = json.loads(head)
        self._pending = {player: _action(fields) for player, fields in pending.items()}
        self.load_round(state)

    @property
    def _label(self) -> str:
        return self.spec.id.replace(" ", "_")


def _action(fields: Mapping[str, Any]) -> Action:
    call = fields["call"]
    return Action(fields["text"], None if call is None else ToolCall(**call))
