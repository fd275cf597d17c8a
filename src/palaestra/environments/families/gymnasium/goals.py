"""Gymnasium's grids with a cell to reach, which each task states: goal-conditioned RL.

Ids: `gymnasium-goals/Taxi-v4` samples the goal from all cells; behind a further slash, only from
the north-east `corner`, or only from `outside` of it. Each row and each column of the corner has
goals outside, but no pair of them has: trained outside and tested in the corner, a policy meets
goals out of distribution, as in the benchmark of GOAT (Yang et al. 2023).

Dynamics are the package's. Only its moves are actions; rewards are 1 at the goal and 0 elsewhere.
An episode ends at the goal, or where the package ends it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from gymnasium import spaces as package_spaces

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import UnknownName
from palaestra.core.goals import ACHIEVED, with_goal
from palaestra.core.task import Task
from palaestra.environments.base import refused
from palaestra.environments.families.gymnasium.environment import Gymnasium, quiet
from palaestra.environments.families.gymnasium.plan import Plan
from palaestra.environments.families.gymnasium.spaces import ActionParser, Choice, line
from palaestra.environments.families.gymnasium.words import Solved, Words, of

Cell = tuple[int, int]  # row, column
REGIONS: Mapping[str, Callable[[bool], bool]] = {
    "": lambda in_corner: True,
    "corner": lambda in_corner: in_corner,
    "outside": lambda in_corner: not in_corner,
}
"""The cells that tasks name as goals, by what stands behind the id's last slash."""


def _taxi(env: Any, state: int) -> Cell:
    row, column, *_ = env.decode(state)
    return int(row), int(column)


def _cliff(env: Any, state: int) -> Cell:
    row, column = divmod(int(state), env.shape[1])
    return row, column


CELLS: Mapping[str, Callable[[Any, int], Cell]] = {"Taxi-v4": _taxi, "CliffWalking-v1": _cliff}
"""The cell of a state, by the package's id."""


def worded(cell: Cell) -> str:
    """Return a cell in words, as goals and observations have it."""
    return f"row {cell[0]}, column {cell[1]}"


class GoalGrids(Gymnasium, id="gymnasium-goals"):
    """One of Gymnasium's deterministic grids, with a goal that its tasks state."""

    words: ClassVar[Mapping[str, Words]] = {
        "Taxi": Words(
            goal=(
                "Drive the taxi to the goal. Row 0 is in the north, column 0 in the west. Walls: "
                "in rows 0 and 1 between columns 1 and 2; in rows 3 and 4 between columns 0 and 1, "
                "and 2 and 3."
            ),
            actions=("south", "north", "east", "west"),
            solved=Solved.ENDS,
            tabular=True,
            turns=20,
        ),
        "CliffWalking": Words(
            goal=(
                "Walk to the goal. Row 0 is at the top, column 0 on the left. Row 3 is a cliff "
                "from column 1 to 10: who steps over it is back at row 3, column 0. At row 3, "
                "column 11 it is over."
            ),
            actions=("up", "right", "down", "left"),
            solved=Solved.ENDS,
            tabular=True,
            turns=30,
        ),
    }

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._id, _, region = name.partition("/")
        self._region = _region(type(self), self._id, region)
        self._goal: Cell = (0, 0)

    @classmethod
    def names(cls) -> list[str]:
        """List the grids, each with its regions of goals."""
        return [f"{id}/{region}".rstrip("/") for id in CELLS for region in REGIONS]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the spec; raises UnknownName if there is no such grid, or no such region."""
        if name not in (known := cls.names()):
            raise UnknownName("grid with goals", name, known)
        return super().spec_of(name)

    def achieved_goal(self) -> str | None:
        """Return the cell that the agent is in, in words; None if no task names it as the goal."""
        cell = self._cell()
        return worded(cell) if cell in self._region else None

    def _begin(self, task: Task) -> Observation:
        super()._begin(task)
        start, rng = self._cell(), random.Random(f"goal {task.seed}")
        self._goal = rng.choice([cell for cell in self._region if cell != start])
        self._plan = _plan(type(self), self._id, self._goal)
        self._start_distance = self._plan.left(int(self._env.unwrapped.s))
        return Observation(self._described())

    def _act(self, action: Action) -> Transition:
        choice = self._parser.parse(line(action.text))
        if choice is None:
            return refused(self._parser.instruction)
        with quiet():
            _, _, terminated, truncated, _ = self._env.step(choice)
        self._solved = self._cell() == self._goal
        achieved = self.achieved_goal()
        return Transition(
            Observation(self._described()),
            reward=float(self._solved),
            terminated=self._solved or bool(terminated),
            truncated=bool(truncated) and not self._solved and not terminated,
            success=self._solved,
            info={} if achieved is None else {ACHIEVED: achieved},
        )

    def _cell(self) -> Cell:
        return self._cell_of(int(self._env.unwrapped.s))

    def _cell_of(self, state: int) -> Cell:
        return CELLS[self._id](self._env.unwrapped, state)

    def _described(self) -> str:
        return with_goal(f"You are in {worded(self._cell())}.", worded(self._goal))

    @classmethod
    def _made(cls, name: str) -> Any:
        return super()._made(name.partition("/")[0])

    @classmethod
    def _readable(cls, name: str, env: Any) -> ActionParser:
        moves = of(name.partition("/")[0], cls.words).actions
        return Choice(package_spaces.Discrete(len(moves)), moves)


@cache
def _region(cls: type[GoalGrids], id: str, region: str) -> tuple[Cell, ...]:
    """Return the cells of a region that some move leads to, in order."""
    inner = cls._made(id).unwrapped
    cells = sorted({CELLS[id](inner, after) for _, _, after, _ in _moves(cls, id)})
    rows, columns = (1 + max(numbers) for numbers in zip(*cells, strict=True))

    def in_corner(cell: Cell) -> bool:
        return cell[0] < rows // 2 and cell[1] > columns // 2

    return tuple(cell for cell in cells if REGIONS[region](in_corner(cell)))


@cache
def _plan(cls: type[GoalGrids], id: str, goal: Cell) -> Plan:
    """Return the shortest paths to a cell, by state of the package's table."""
    inner = cls._made(id).unwrapped
    table: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = {}
    for state, move, after, over in _moves(cls, id):
        arrives = CELLS[id](inner, after) == goal
        outcome = (1.0, after, float(arrives), arrives or over)
        table.setdefault(state, {})[move] = [outcome]
    return Plan(table, lambda reward: reward > 0)


@cache
def _moves(cls: type[GoalGrids], id: str) -> list[tuple[int, int, int, bool]]:
    """Return state, move, next state, and whether that ends the episode, of the package's table."""
    moves = range(len(of(id, cls.words).actions))
    table = cls._made(id).unwrapped.P
    return [
        (int(state), move, int(after), bool(over))
        for state, row in table.items()
        for move in moves
        for _, after, _, over in row[move]
    ]
