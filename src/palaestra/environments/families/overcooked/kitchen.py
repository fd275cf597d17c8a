"""A kitchen of the package `overcooked-ai`: its layout, its present state, and both in words."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

with contextlib.redirect_stderr(io.StringIO()):  # its import of gym writes a notice
    from overcooked_ai_py.mdp.actions import Action, Direction
    from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld, OvercookedState

LAYOUTS = (
    "cramped_room",
    "asymmetric_advantages",
    "coordination_ring",
    "forced_coordination",
    "counter_circuit_o_1order",
)
"""The layouts of Carroll et al. (2019). All order soups of three onions, which matters because the
package holds its recipes in one place for all kitchens of a process."""

STAY, INTERACT = "stay", "interact"
MOVES: dict[str, Any] = {
    "north": Direction.NORTH,
    "south": Direction.SOUTH,
    "east": Direction.EAST,
    "west": Direction.WEST,
    STAY: Action.STAY,
    INTERACT: Action.INTERACT,
}
DIRECTIONS = {MOVES[name]: name for name in ("north", "south", "east", "west")}
COOKS = ("cook1", "cook2")
FLOOR, POT = " ", "P"
STATIONS = {
    FLOOR: "floor",
    "X": "a counter",
    "O": "the onions",
    "D": "the dishes",
    POT: "a pot",
    "S": "the serving window",
}

Cell = tuple[int, int]  # x from west to east, y from north to south, from 0


class Kitchen:
    """One layout with two cooks."""

    def __init__(self, layout: str) -> None:
        self.rules = OvercookedGridworld.from_layout_name(layout)
        self.state: Any = self.rules.get_standard_start_state()

    @property
    def steps(self) -> int:
        """The steps that were played."""
        return self.state.timestep

    def start(self, rng: random.Random) -> None:
        """Place the cooks at random, each where it can walk to from its place in the layout."""
        first, second = map(self.reachable, self.rules.start_player_positions)
        places = [pair for pair in product(first, second) if pair[0] != pair[1]]
        self.state = OvercookedState.from_player_positions(
            rng.choice(places), all_orders=self.rules.start_all_orders
        )

    def step(self, moves: Sequence[str]) -> tuple[int, list[str]]:
        """Play a step of both cooks.

        Returns:
            The number of soups that were served as ordered, and the cooks whose moves had no
            effect.
        """
        before = [self._touched(cook) for cook in range(len(COOKS))]
        faced = [self.faced(cook) for cook in range(len(COOKS))]
        self.state, info = self.rules.get_state_transition(
            self.state, tuple(MOVES[move] for move in moves)
        )
        served = sum(reward > 0 for reward in info["sparse_reward_by_agent"])
        vain = [
            name
            for cook, name in enumerate(COOKS)
            if moves[cook] != STAY and before[cook] == self._touched(cook, faced[cook])
        ]
        return served, vain

    def dump(self) -> Any:
        """Return the state as JSON data; equal states give equal data."""
        data = self.state.to_dict()
        return {**data, "objects": sorted(data["objects"], key=lambda thing: thing["position"])}

    def load(self, data: Any) -> None:
        """Restore what `dump` returned, also after a way through JSON."""
        text = json.dumps(data)
        state = OvercookedState.from_dict(json.loads(text, object_hook=_with_cells))
        self.state = state.deepcopy()  # which forgets the cooking time of idle soups, -1

    # ── in words ─────────────────────────────────────────────────────────────

    def plan(self) -> str:
        """Return the stations with their cells, and the cells of the floor."""
        lines = []
        for kind, name in STATIONS.items():
            cells = sorted(self.rules.terrain_pos_dict[kind], key=lambda cell: cell[::-1])
            lines.append(f"{name}: {', '.join(map(str, cells))}")
        return "\n".join(lines)

    def describe(self) -> str:
        """Return what the cooks do and hold, the pots, and what lies on counters."""
        lines = [self._cook(cook) for cook in range(len(COOKS))]
        lines += [self._pot(cell) for cell in self.rules.get_pot_locations()]
        on = [
            f"{_thing(thing)} at {cell}"
            for cell, thing in sorted(self.state.objects.items())
            if self.rules.get_terrain_type_at_pos(cell) != POT
        ]
        return "\n".join([*lines, f"On counters: {', '.join(on) or 'nothing'}."])

    def _cook(self, cook: int) -> str:
        player, faced = self.state.players[cook], self.faced(cook)
        held = _thing(player.held_object) if player.held_object else "nothing"
        other = any(player.position == faced for player in self.state.players)
        what = "the other cook" if other else STATIONS[self.rules.get_terrain_type_at_pos(faced)]
        return (
            f"{COOKS[cook]} at {player.position} faces {DIRECTIONS[player.orientation]}, to {what} "
            f"at {faced}, and holds {held}."
        )

    def _pot(self, cell: Cell) -> str:
        soup = self.state.objects.get(cell)
        if soup is None:
            return f"The pot at {cell} is empty."
        onions = len(soup.ingredients)
        if soup.is_idle:
            return f"The pot at {cell} has {onions} of 3 onions and does not cook."
        if soup.is_ready:
            return f"The pot at {cell} has {_thing(soup)} that is ready."
        left = soup.cook_time_remaining
        return f"The pot at {cell} cooks {_thing(soup)}, ready in {left} steps."

    # ── details ──────────────────────────────────────────────────────────────

    def faced(self, cook: int) -> Cell:
        player = self.state.players[cook]
        return Action.move_in_direction(player.position, player.orientation)

    def _touched(self, cook: int, cell: Cell | None = None) -> tuple[object, ...]:
        """Return all that a cook's move may change, but not how long a soup has cooked.

        Args:
            cook: its number.
            cell: that it faced before the move; by default the one that it faces.
        """
        player, thing = self.state.players[cook], self.state.objects.get(cell or self.faced(cook))
        held = player.held_object and player.held_object.name
        soup = (len(thing.ingredients), thing.is_idle) if thing and thing.name == "soup" else None
        return player.position, player.orientation, held, thing and thing.name, soup

    def reachable(self, start: Cell) -> list[Cell]:
        """Return the cells of the floor that can be walked to from a cell, sorted."""
        floor, found, edge = set(self.rules.get_valid_player_positions()), {start}, [start]
        while edge:
            cell = edge.pop()
            for direction in DIRECTIONS:
                beside = Action.move_in_direction(cell, direction)
                if beside in floor - found:
                    found.add(beside)
                    edge.append(beside)
        return sorted(found)


def _thing(thing: Any) -> str:
    """Return a thing in words: "a dish", "an onion", "a soup of 3 onions"."""
    if thing.name == "soup":
        onions = len(thing.ingredients)
        return f"a soup of {onions} onion{'s' if onions > 1 else ''}"
    return {"onion": "an onion", "dish": "a dish"}[thing.name]


def _with_cells(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a thing with positions and directions as tuples, as the package has."""
    keys = fields.keys() & {"position", "orientation"}
    return {**fields, **{key: tuple(fields[key]) for key in keys}}
