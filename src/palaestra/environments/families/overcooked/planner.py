"""A planner of a kitchen: one cook works at a time, and the other makes room or hands things on.

It is not part of the package, whose planners search for minutes. It does one job after another (an
onion, the pot, a dish, the window), each by a shortest walk of both cooks, so it never blocks
itself; what the cooks could do at the same time it does not use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import product

from palaestra.environments.families.overcooked.kitchen import (
    COOKS,
    DIRECTIONS,
    INTERACT,
    MOVES,
    STAY,
    Cell,
    Kitchen,
)
from palaestra.environments.families.overcooked.orders import Orders

Moves = tuple[str, str]  # of both cooks in one step
Job = tuple[int, Cell]  # the cook that uses what is in a cell
Pair = tuple[Cell, Cell]  # where the cooks are
STEPS = [*DIRECTIONS, MOVES[STAY]]


def plan(
    kitchen: Kitchen, orders: Orders, delivered: Collection[int]
) -> tuple[list[Moves], set[int]]:
    """Return the moves of both cooks, step by step, until all orders are delivered or too late.

    Args:
        kitchen: is played to the end of the plan.
        orders: when they arrive and are due.
        delivered: the orders that are.

    Returns:
        The moves, and the orders that are delivered at the end. Moves may end early where the
        planner knows no way on.
    """
    found: list[Moves] = []
    done = set(delivered)
    while not orders.closed(kitchen.steps, done):
        walk = _next_walk(kitchen)
        if walk is None:
            break
        moves, serves = walk
        if serves and not orders.open(kitchen.steps + len(moves), done):
            moves = [(STAY, STAY)]  # until there is an order
        for pair in moves:
            served, _ = kitchen.step(pair)
            done.update(orders.open(kitchen.steps, done)[:served])
            found.append(pair)
            if orders.closed(kitchen.steps, done):
                break
    return found, done


def _next_walk(kitchen: Kitchen) -> tuple[list[Moves], bool] | None:
    """Return the moves of the next job and whether it serves a soup; None: there is no job."""
    for jobs in _jobs(kitchen):
        walks = [(walk, job) for job in sorted(jobs) if (walk := _walk(kitchen, *job))]
        if walks:
            walk, (_, cell) = min(walks, key=lambda found: len(found[0]))
            if len(walk) == 1 and _cooks(kitchen, cell):
                return [(STAY, STAY)], False  # until the soup is ready
            if _cooks(kitchen, cell):
                return walk[:-1], False
            return walk, cell in kitchen.rules.get_serving_locations()
    return None


def _jobs(kitchen: Kitchen) -> Iterator[Iterable[Job]]:
    """Yield jobs that are as good as each other, the most urgent ones first."""
    state, kinds = kitchen.state, kitchen.rules.terrain_pos_dict
    held = [player.held_object.name if player.held_object else None for player in state.players]
    soups = {pot: state.objects.get(pot) for pot in kinds["P"]}
    yield product(_holding(held, "soup"), kinds["S"])
    full = [pot for pot, soup in soups.items() if soup and soup.is_idle and soup.is_full]
    yield product(_holding(held, None), full)
    if full:
        yield from _lay_down(kitchen, range(len(COOKS)))
    started = [pot for pot, soup in soups.items() if soup and not soup.is_idle]
    if started:
        yield from _bring(kitchen, held, "dish", kinds["D"], started)
    room = [pot for pot, soup in soups.items() if soup is None or not soup.is_full]
    fullest = max(
        room, key=lambda pot: len(soups[pot].ingredients) if soups[pot] else 0, default=None
    )
    if fullest and not started:
        yield from _bring(kitchen, held, "onion", kinds["O"], [fullest])
    yield from _lay_down(kitchen, range(len(COOKS)))


def _bring(
    kitchen: Kitchen, held: list[str | None], name: str, source: list[Cell], pots: list[Cell]
) -> Iterator[Iterable[Job]]:
    """Yield the jobs that bring a thing to one of the pots, the last one first."""
    near = [cook for cook in range(len(COOKS)) if any(_reaches(kitchen, cook, pot) for pot in pots)]
    having, free = _holding(held, name), _holding(held, None)
    lying = [cell for cell, thing in kitchen.state.objects.items() if thing.name == name]
    yield product(having, pots)
    yield from _lay_down(kitchen, [cook for cook in having if cook not in near])
    if not having:
        yield [(cook, cell) for cook in free if cook in near for cell in [*lying, *source]]
        yield [(cook, cell) for cook in free if cook not in near for cell in source]


def _lay_down(kitchen: Kitchen, cooks: Iterable[int]) -> Iterator[Iterable[Job]]:
    """Yield the ways to lay down what cooks hold: where both reach it, else anywhere."""
    busy = [cook for cook in cooks if kitchen.state.players[cook].held_object]
    empty = [c for c in kitchen.rules.terrain_pos_dict["X"] if c not in kitchen.state.objects]
    both = [c for c in empty if all(_reaches(kitchen, cook, c) for cook in range(len(COOKS)))]
    yield product(busy, both)
    yield product(busy, empty)


def _holding(held: list[str | None], name: str | None) -> list[int]:
    return [cook for cook, thing in enumerate(held) if thing == name]


def _cooks(kitchen: Kitchen, cell: Cell) -> bool:
    soup = kitchen.state.objects.get(cell)
    return bool(soup and soup.name == "soup" and soup.is_cooking)


def _beside(cell: Cell) -> Iterator[Cell]:
    for x, y in DIRECTIONS:
        yield cell[0] + x, cell[1] + y


def _reaches(kitchen: Kitchen, cook: int, cell: Cell) -> bool:
    """Return whether a cook can walk to a cell's side, if the other one makes room."""
    floor = kitchen.reachable(kitchen.state.players[cook].position)
    return any(beside in floor for beside in _beside(cell))


def _walk(kitchen: Kitchen, cook: int, cell: Cell) -> list[Moves]:
    """Return the shortest moves of both after which a cook has used a cell; empty: it cannot."""
    if not _reaches(kitchen, cook, cell):
        return []
    players = kitchen.state.players
    if kitchen.faced(cook) == cell:
        return [_moves(cook, INTERACT, STAY)]
    floor = set(kitchen.rules.get_valid_player_positions())
    start: Pair = (players[0].position, players[1].position)
    came: dict[Pair, tuple[Pair, Moves] | None] = {start: None}
    edge = deque([start])
    while edge:
        pair = edge.popleft()
        towards = (cell[0] - pair[cook][0], cell[1] - pair[cook][1])
        if towards in DIRECTIONS:
            walk = [_moves(cook, DIRECTIONS[towards], STAY), _moves(cook, INTERACT, STAY)]
            while before := came[pair]:
                pair, moves = before
                walk.insert(0, moves)
            return walk
        for steps in product(STEPS, repeat=len(COOKS)):
            first, second = (
                (at[0] + step[0], at[1] + step[1]) for at, step in zip(pair, steps, strict=True)
            )
            after = (first, second)
            meet = first == second or after == pair[::-1]
            if first in floor and second in floor and not meet and after not in came:
                names = [DIRECTIONS.get(step, STAY) for step in steps]
                came[after] = pair, (names[0], names[1])
                edge.append(after)
    return []


def _moves(cook: int, own: str, other: str) -> Moves:
    """Return the moves of both cooks by what one of them and the other do."""
    return (own, other) if cook == 0 else (other, own)
