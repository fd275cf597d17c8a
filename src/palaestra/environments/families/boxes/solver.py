"""The reference solution of the grid of boxes: every box takes a shortest way, the farthest first.

It is greedy: a round's moves are added one by one, those that would collide with earlier ones are
left out. Where all boxes block each other, a chain of moves makes room. Plans are good, not always
the shortest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from palaestra.environments.families.boxes.rules import GOAL, ROOM, Move, State

MOST = 60  # rounds after which a plan is given up


def solve(state: State) -> list[dict[int, Move]]:
    """Return rounds that bring all boxes home, each as moves by cell; empty if none are found."""
    rounds: list[dict[int, Move]] = []
    while state.boxes:
        if len(rounds) == MOST:
            return []
        rounds.append(best_round(state))
        state = state.after(rounds[-1])
    return rounds


def best_round(state: State, fixed: Mapping[int, Move | None] | None = None) -> dict[int, Move]:
    """Return a round's moves by cell; cells that wait are left out.

    Args:
        state: at the beginning of the round.
        fixed: moves that are given, by cell; None is waiting.
    """
    fixed = fixed or {}
    chosen = {cell: move for cell, move in fixed.items() if move is not None}
    for box, goal in sorted(state.goals.items()):
        if state.boxes[box] == goal and goal not in (chosen.keys() | fixed.keys()):
            chosen[goal] = Move(box, GOAL)
    farthest = sorted(state.boxes, key=lambda box: (-_left(state, box, state.boxes[box]), box))
    added = True
    while added:  # a move may make room for another one
        added = False
        for box in farthest:
            cell = state.boxes[box]
            if cell in chosen or cell in fixed:
                continue
            for direction, beside in state.grid.neighbours(cell).items():
                nearer = _left(state, box, beside) < _left(state, box, cell)
                with_it = {**chosen, cell: Move(box, direction)}
                if nearer and len(state.collisions(with_it)) == len(state.collisions(chosen)):
                    chosen, added = with_it, True
                    break
    return chosen or ({} if fixed else _make_room(state, farthest))


def _left(state: State, box: str, cell: int) -> int:
    """Return how many moves a box in that cell is from its goal's cell."""
    return state.grid.distance(cell, state.goals[box])


def _make_room(state: State, farthest: Sequence[str]) -> dict[int, Move]:
    """Return a chain of moves from the cell in the way of the farthest box to one with room."""
    first = farthest[0]
    start = state.boxes[first]
    blocked = state.grid.paths(start)[state.goals[first]][0]
    roomy = [cell for cell in range(state.grid.count) if len(state.within(cell)) < ROOM]
    ways = [path for cell, path in state.grid.paths(blocked).items() if cell in roomy]
    chain = [blocked, *min(ways, key=lambda path: (start in path, len(path)))]
    moves = {} if start in chain else {start: _towards(state, start, blocked, [first])}
    for cell, beside in pairwise(chain):
        moves[cell] = _towards(state, cell, beside, state.within(cell))
    return moves


def _towards(state: State, cell: int, beside: int, boxes: Sequence[str]) -> Move:
    """Return the move into a neighbouring cell of the box that loses least by it."""
    box = min(boxes, key=lambda box: _left(state, box, beside))
    directions = state.grid.neighbours(cell)
    return Move(box, next(to for to, where in directions.items() if where == beside))
