"""Small games with several players, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from palaestra.core.environment import Action, Observation, Stakes
from palaestra.core.task import Task
from palaestra.environments.simultaneous import Round, Simultaneous

ROUNDS = 3


class Tally(
    Simultaneous,
    players=("ann", "bob", "cat"),
    stakes=Stakes("general", forfeit=-5.0),
    capabilities={"state_key", "snapshot", "admissible"},
    typical_turns=9,
):
    """Everybody names 1, 2 or 3 at once; whoever names what nobody else does gets that much."""

    instructions = "Name a number: 1, 2, 3."

    def begin(self, task: Task) -> None:
        self.past: list[dict[str, int]] = []
        self.start = task.seed % 3

    def movers(self) -> Sequence[str]:
        return self.spec.players if len(self.past) < ROUNDS else ()

    def observe(self, player: str) -> Observation:
        last = [f"{name} {n}" for name, n in sorted(self.past[-1].items())] if self.past else []
        return Observation(f"{player}, round {len(self.past) + 1}. Last: {', '.join(last) or '-'}")

    def refusal(self, player: str, action: Action) -> str | None:
        return None if action.text in ("1", "2", "3") else f"{player}: 1, 2 or 3."

    def play(self, moves: Mapping[str, Action]) -> Round:
        named = {player: int(moves[player].text) for player in sorted(moves)}
        self.past.append(named)
        alone = {p: list(named.values()).count(n) == 1 for p, n in named.items()}
        return Round({p: float(n * alone[p]) for p, n in named.items()})

    def admissible(self) -> list[str]:
        return ["1", "2", "3"]

    def save_round(self) -> bytes:
        return json.dumps([self.start, self.past]).encode()

    def load_round(self, state: bytes) -> None:
        self.start, self.past = json.loads(state)


class Ring(Tally, stakes=Stakes("general", forfeit=-5.0, idle="1")):
    """The same, in which the others play on after a forfeit."""
