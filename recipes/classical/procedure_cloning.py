"""Procedure cloning: a policy that writes the expert's search down before it acts.

Source: Yang et al. 2022, Chain of Thought Imitation with Procedure Cloning. The expert of a maze
finds its way by breadth-first search from the goal. Plain cloning imitates its actions; procedure
cloning imitates the search as well, cell by cell, and has no planner when it is tested.

    PYTHONPATH=. palaestra train recipes/classical/procedure_cloning.toml

Plain cloning is the same with the agent `recipes.classical.procedure_cloning:Solver?work=false`.

A maze has 4 x 4 cells with names of two letters (the column's, the row's), in which walls are
told by their cells. `easy` mazes have 3 of them; `far` ones, too, but ways of 5 steps or more;
`hard` ones have 5, which makes them longer to tell than any that was learned from.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session
from palaestra.core.task import Task, TaskSet

COLUMNS, ROWS = "abcd", "wxyz"
CELLS = [column + row for column in COLUMNS for row in ROWS]
KINDS = {
    "easy": (3, 2),
    "far": (3, 5),
    "hard": (5, 4),
}  # walls, and steps of the shortest way at least
MOVES = {"up": (0, -1), "right": (1, 0), "down": (0, 1), "left": (-1, 0)}
WALL, NEW, KNOWN, HERE = "#", "+", "-", "*"  # what the search says of a cell beside another one


class Maze(
    Environment,
    capabilities={Capability.STATE_KEY, Capability.ORACLE, Capability.ADMISSIBLE},
    typical_turns=10,
):
    """A maze that is seen whole."""

    instructions = "You walk through a maze. Reply with one word: up, right, down, left."
    at, goal = "", ""
    walls: tuple[str, ...] = ()

    @classmethod
    def names(cls) -> list[str]:
        return list(KINDS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        dice = random.Random(f"maze {self.spec.name} {task.seed}")
        count, least = KINDS[self.spec.name]
        distance = 0
        while distance < least:  # 0: there is no way
            self.at, self.goal, *walls = dice.sample(CELLS, 2 + count)
            self.walls = tuple(sorted(walls))
            distance = len(self.oracle())
        return self._told()

    def step(self, action: Action) -> Transition:
        word = action.text.strip().strip(".").lower()
        if self.at == self.goal:
            return Transition(Observation("You are there."), terminated=True, valid=False)
        if word not in MOVES:
            return Transition(Observation(self.instructions), valid=False)
        to = beside(self.at, word)
        self.at = to if to and to not in self.walls else self.at
        there = self.at == self.goal
        return Transition(self._told(), float(there), terminated=there, success=there)

    def state_key(self) -> str:
        return self._told().text

    def oracle(self) -> Sequence[Action]:
        """One of the shortest ways; nothing where there is none."""
        back = {
            cell: (word, parent)
            for parent, word, cell, mark in search(self.at, self.goal, self.walls)
            if mark in (NEW, HERE)
        }
        way, cell = [], self.at
        while cell in back and cell != self.goal:
            word, cell = back[cell]
            way.append(Action(word))
        return way if cell == self.goal else []

    def admissible(self) -> Sequence[str]:
        return list(MOVES) if self.at != self.goal else []

    def _told(self) -> Observation:
        return Observation(f"at {self.at} goal {self.goal} walls {' '.join(self.walls)}")


class Solver(Agent):
    """Sees the present maze and nothing else; with `work`, it writes the search down first."""

    name = "solver"

    def __init__(self, *, work: bool = True) -> None:
        self.work = work

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        while not session.over:
            reply = await session.generate([system(session.instructions), user(seen)])
            action = reply.text.split()[-1] if reply.text.split() else ""
            seen = (await session.act(action, by=reply)).observation.text

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """What the expert's search does in the maze that is told, and the action it ends with."""
        if not self.work:
            return actions[0].text
        _, at, _, goal, _, *walls = messages[-1].text.split()
        lines: dict[str, str] = {}
        for parent, _, cell, mark in search(at, goal, walls):
            lines[parent] = lines.get(parent, f" {parent}:") + f" {cell}{mark}"
        return ";".join(lines.values()) + f". {actions[0].text}"


def beside(cell: str, word: str) -> str:
    """The cell in that direction; "" outside of the maze."""
    dx, dy = MOVES[word]
    x, y = COLUMNS.index(cell[0]) + dx, ROWS.index(cell[1]) + dy
    return COLUMNS[x] + ROWS[y] if 0 <= x < len(COLUMNS) and 0 <= y < len(ROWS) else ""


def search(at: str, goal: str, walls: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """Breadth-first from the goal until `at` is met, each look at a neighbour in turn.

    Yields: the cell looked from, the move that leads to it from the neighbour, the neighbour, and
        what is found out: a wall, a new cell, a known one, or `at`.
    """
    queue, known = [goal], {goal}
    for parent in queue:
        for word in MOVES:
            cell = beside(parent, word)
            if not cell:
                continue
            back = {"up": "down", "down": "up", "left": "right", "right": "left"}[word]
            mark = WALL if cell in walls else KNOWN if cell in known else NEW
            mark = HERE if cell == at and mark == NEW else mark
            yield parent, back, cell, mark
            if mark == HERE:
                return
            if mark == NEW:
                known.add(cell)
                queue.append(cell)
