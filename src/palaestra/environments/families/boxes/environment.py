"""Boxes: robot arms on a grid bring boxes to their goals, by one plan for all or each by itself.

`boxes/N`: one planner says in each round what all N arms do (`robot1: box A east; robot2: wait`).
`boxes/N:each`: every robot is a player; all move at the same time. `boxes/N:near`: the same, and a
robot sees its own cell and those beside it alone; `boxes/N:cell`: its own cell alone. All have the
same tasks, so ways to work together can be compared. Arms that collide change nothing, which is
said in words.

Source: Chen et al. 2023, "Scalable Multi-Robot Collaboration with Large Language Models:
Centralized or Decentralized Systems?" (BoxNet). Ours: each box has a goal of its own, a cell holds
two boxes, and arms may not reach across one border in both directions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Capability, Observation, Spec, Stakes
from palaestra.core.task import Task
from palaestra.core.team_words import joint_plan, parts_of
from palaestra.environments.base import without_parameters
from palaestra.environments.families.boxes.rules import (
    GOAL,
    ROOM,
    STEPS,
    WAIT,
    Grid,
    Move,
    State,
    parse_move,
)
from palaestra.environments.families.boxes.solver import best_round, solve
from palaestra.environments.simultaneous import Round, Simultaneous

SIZES = range(2, 9)
EACH, NEAR, CELL = "each", "near", "cell"  # forms in which every robot is a player, by its view
NAMES = "ABCDEFGHI"  # of boxes; there is one more than robots
RULES = (
    "Each cell of a grid has one robot arm. In a round an arm moves one box of its cell to a "
    "neighbouring cell, or onto the box's goal if that is in its cell. A box on its goal is home. "
    f"A cell holds {ROOM} boxes that are not home, and two arms cannot reach across the same "
    "border in opposite directions: arms that collide change nothing. Bring all boxes home."
)
WRITE = f"box A east (or {', '.join(list(STEPS)[2:])}, {next(iter(STEPS))}, {GOAL})"


def robot(cell: int) -> str:
    """Return the name of the robot in a cell."""
    return f"robot{cell + 1}"


class Boxes(
    Simultaneous,
    id="boxes",
    capabilities={"state_key", "snapshot", "oracle", "admissible", "progress"},
):
    """One grid, for one planner or for a player per robot."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        count, _, self._form = name.partition(":")
        self._grid = Grid(int(count))
        self._robots = [robot(cell) for cell in range(self._grid.count)]
        self._state = State(self._grid, {}, {})
        self._total = 0  # boxes of the task
        self._round = 0  # rounds that were played
        self._events: list[tuple[int, str]] = []  # of the last round: cell and what happened there

    @classmethod
    def names(cls) -> list[str]:
        return [
            f"{n}{form}"
            for n in SIZES
            for form in ("", *(f":{view}" for view in (EACH, NEAR, CELL)))
        ]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Set players, and turns for twice the rounds, since a refused plan takes none."""
        spec, (count, _, form) = super().spec_of(name), name.partition(":")
        turns = 2 * _rounds(int(count))
        if not form:
            alone = spec.capabilities - {Capability.ADMISSIBLE}
            return replace(spec, capabilities=alone, typical_turns=turns)
        return replace(
            spec,
            players=tuple(robot(cell) for cell in range(int(count))),
            stakes=Stakes("common", forfeit=0.0, idle=WAIT),
            typical_turns=turns * int(count),
        )

    @property
    def instructions(self) -> str:
        rules = f"{RULES}\nNeighbours:\n{self._layout()}\n"
        if self._form:
            return (
                f"{rules}All robots move at the same time. Reply with one move: {WRITE}, or {WAIT}."
            )
        return (
            f"{rules}Reply with a joint plan for one round, such as: "
            f"robot1: box A east; robot2: {WAIT}. A robot's move is {WRITE}; robots that you leave "
            "out wait."
        )

    def begin(self, task: Task) -> None:
        """Place boxes and goals; raise InputError for a task with parameters."""
        without_parameters(task)
        rng, count = random.Random(f"boxes {self._grid.count} {task.seed}"), self._grid.count
        names, solvable = NAMES[: count + 1], False
        while not solvable:
            places = [cell for cell in range(count) for _ in range(ROOM)]
            boxes = dict(zip(names, rng.sample(places, count + 1), strict=True))
            goals = {box: rng.randrange(count) for box in names}
            self._state = State(self._grid, boxes, goals)
            apart = all(boxes[box] != goals[box] for box in names)
            solvable = apart and 0 < 2 * len(solve(self._state)) <= _rounds(count)
        self._total, self._round, self._events = len(names), 0, []

    def movers(self) -> Sequence[str]:
        over = not self._state.boxes or self._round >= _rounds(self._grid.count)
        return () if over else self.spec.players

    def refusal(self, player: str, action: Action) -> str | None:
        try:
            self._moves(player, action.text)
        except ValueError as reason:
            return str(reason)
        return None

    def play(self, moves: Mapping[str, Action]) -> Round:
        planned: dict[int, Move] = {}
        for player in self.spec.players:
            planned |= self._moves(player, moves[player].text)
        before, failed = self._state, self._state.collisions(planned)
        self._state, self._round = before.after(planned), self._round + 1
        self._events = [
            (cell, self._event(cell, move, failed.get(cell)))
            for cell, move in sorted(planned.items())
        ]
        home = (len(before.boxes) - len(self._state.boxes)) / self._total
        solved = not self._state.boxes
        cut = not solved and not self.movers()
        return Round(dict.fromkeys(self.spec.players, home), success=solved, truncated=cut)

    def observe(self, player: str) -> Observation:
        visible = self._visible(player)
        lines = [self._cell(cell) for cell in sorted(visible)]
        lines += [text for cell, text in self._events if cell in visible]
        return Observation("\n".join([self._heading(), *lines]))

    def progress(self) -> float:
        """Return the share of boxes that are home."""
        return 1 - len(self._state.boxes) / self._total

    def oracle(self) -> list[Action]:
        """Return the reference solution from here; empty if none is found."""
        if not self.movers():
            return []
        pending = self._pending_moves()
        rounds = solve(self._state)
        if any(rounds[:1] != [] and rounds[0].get(cell) != move for cell, move in pending.items()):
            first = best_round(self._state, pending)
            rounds = [first, *solve(self._state.after(first))]
        if not self._form:
            return [Action(self._joint(moves)) for moves in rounds]
        flat = [str(moves.get(cell, WAIT)) for moves in rounds for cell in range(self._grid.count)]
        return [Action(text) for text in flat[len(pending) :]]

    def admissible(self) -> list[str]:
        """Return the moves of the player that acts next."""
        if not self._form:
            self._undeclared(Capability.ADMISSIBLE)
        if not (acting := self.acting()):
            return []
        cell = self._robots.index(acting[0])
        return [*map(str, self._state.moves(cell)), WAIT]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample each robot's move from those that it can make."""
        if self._form:
            return Action(rng.choice(self.admissible() or [WAIT]))
        parts = {
            name: rng.choice([*map(str, self._state.moves(cell)), WAIT])
            for cell, name in enumerate(self._robots)
        }
        return Action(joint_plan(parts))

    def save_round(self) -> bytes:
        boxes, goals = sorted(self._state.boxes.items()), sorted(self._state.goals.items())
        return json.dumps([boxes, goals, self._total, self._round, self._events]).encode()

    def load_round(self, state: bytes) -> None:
        boxes, goals, self._total, self._round, events = json.loads(state)
        self._state = State(self._grid, dict(boxes), dict(goals))
        self._events = [(cell, text) for cell, text in events]

    # ── details ──────────────────────────────────────────────────────────────

    def _moves(self, player: str, text: str) -> dict[int, Move]:
        """Return the moves in a player's action, by cell; raises ValueError with the reason."""
        parts = [(player, text)] if self._form else parts_of(text)
        if not parts:
            raise ValueError(f"The plan is empty; write robot1: {WAIT}.")
        found: dict[int, Move] = {}
        seen = set()
        for name, part in parts:
            if name not in self._robots:
                known = f"{self._robots[0]} to {self._robots[-1]}"
                raise ValueError(f"'{name}' is no robot; write {known}, a colon and a move.")
            if name in seen:
                raise ValueError(f"{name} has two moves in the plan; leave one.")
            seen.add(name)
            move = self._move(self._robots.index(name), part)
            if move is not None:
                found[self._robots.index(name)] = move
        return found

    def _move(self, cell: int, text: str) -> Move | None:
        """Return the move of one robot; raises ValueError with the reason."""
        name = robot(cell)
        try:
            move = parse_move(text)
        except ValueError:
            raise ValueError(f"'{text}' is no move of {name}; write {WRITE}, or {WAIT}.") from None
        if move is None:
            return None
        if self._state.boxes.get(move.box) != cell:
            raise ValueError(f"{name} cannot move box {move.box}: it is not in its cell.")
        if move.to == GOAL and self._state.goals[move.box] != cell:
            raise ValueError(f"The goal of box {move.box} is not in the cell of {name}.")
        if move.to != GOAL and move.to not in self._grid.neighbours(cell):
            raise ValueError(f"No cell is {move.to} of {name}.")
        return move

    def _pending_moves(self) -> dict[int, Move | None]:
        """Return the moves of this round that were made, by cell; None is waiting."""
        return {
            self._robots.index(player): parse_move(action.text)
            for player, action in self._pending.items()
        }

    def _joint(self, moves: Mapping[int, Move]) -> str:
        return joint_plan(
            {name: str(moves.get(cell, WAIT)) for cell, name in enumerate(self._robots)}
        )

    def _visible(self, player: str) -> set[int]:
        """Return the cells that a player sees."""
        if self._form in ("", EACH):
            return set(range(self._grid.count))
        own = self._robots.index(player)
        return {own} | (set(self._grid.neighbours(own).values()) if self._form == NEAR else set())

    def _layout(self) -> str:
        """Return a line with the neighbours of each robot."""
        lines = []
        for cell, name in enumerate(self._robots):
            beside = self._grid.neighbours(cell).items()
            lines.append(f"{name}: " + ", ".join(f"{to} {robot(at)}" for to, at in beside))
        return "\n".join(lines)

    def _heading(self) -> str:
        if not self._state.boxes:
            return f"All boxes are home after {self._round} rounds."
        if not self.movers():
            left = ", ".join(sorted(self._state.boxes))
            return f"The {self._round} rounds are over; not home: {left}."
        return f"Round {self._round + 1} of {_rounds(self._grid.count)}."

    def _cell(self, cell: int) -> str:
        """Return the line of one cell: its boxes, and the goals in it."""
        goals = sorted(box for box, where in self._state.goals.items() if where == cell)
        boxes = ", ".join(self._state.within(cell)) or "none"
        return f"{robot(cell)}: boxes {boxes}; goals {', '.join(goals) or 'none'}"

    def _event(self, cell: int, move: Move, failed: str | None) -> str:
        if failed is not None:
            return f"{robot(cell)} did not move box {move.box} {move.to}: {failed}."
        if move.to == GOAL:
            return f"{robot(cell)} brought box {move.box} home."
        return f"{robot(cell)} moved box {move.box} {move.to}."


def _rounds(count: int) -> int:
    """Return the rounds of a task for that many robots."""
    return 2 * count + 8
