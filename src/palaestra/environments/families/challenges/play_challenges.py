"""Challenges of play: small games, which the site follows move by move."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from palaestra.environments.families.challenges.challenge import Challenge, Maker, equals
from palaestra.environments.families.challenges.vocabulary import WORDS

Cell = tuple[int, int]

ARROWS: Mapping[str, Cell] = {
    "ArrowRight": (1, 0), "ArrowLeft": (-1, 0), "ArrowDown": (0, 1), "ArrowUp": (0, -1),
}  # fmt: skip
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
STAR = 3  # seconds between two colours of the star


def moves_below(given: Any, end: int, most: int) -> bool:
    """Return whether a value is a list of at most `most` whole numbers from 0 to `end`, without it.

    Games are followed only through such lists: a page could send anything.
    """
    if not isinstance(given, list) or len(given) > most:
        return False
    return all(type(move) is int and 0 <= move < end for move in given)


def maze(rng: random.Random) -> Challenge:
    width, height = 8, 5
    way: dict[Cell, list[str]] = {(0, 0): []}  # to each cell: the arrows from the start
    stack: list[Cell] = [(0, 0)]
    doors = []
    while stack:  # depth first, so that each cell has one way only
        x, y = stack[-1]
        new = [
            (key, (x + right, y + down))
            for key, (right, down) in ARROWS.items()
            if (x + right, y + down) not in way
            and 0 <= x + right < width
            and 0 <= y + down < height
        ]
        if not new:
            stack.pop()
            continue
        key, cell = rng.choice(new)
        way[cell] = [*way[x, y], key]
        doors.append([[x, y], [*cell]])
        stack.append(cell)
    goal = rng.choice([cell for cell in way if 10 <= len(way[cell]) <= 20])

    def proof(given: Any) -> bool:
        place = (0, 0)
        for key in given if isinstance(given, list) else ():
            right, down = ARROWS.get(key, (0, 0)) if isinstance(key, str) else (0, 0)
            there = (place[0] + right, place[1] + down)
            if [[*place], [*there]] not in doors and [[*there], [*place]] not in doors:
                return False
            place = there
        return place == goal

    return Challenge(
        "Lead the blue dot to the red square with the arrow keys.",
        tuple(f"press '{key}'" for key in way[goal]),
        proof,
        shown={"width": width, "height": height, "doors": doors, "goal": goal},
    )


def memory_pairs(rng: random.Random) -> Challenge:
    symbols = rng.sample(WORDS, 6) * 2
    rng.shuffle(symbols)
    cards: dict[str, list[int]] = {}
    for card, symbol in enumerate(symbols):
        cards.setdefault(symbol, []).append(card)
    pairs = sorted(cards.values())

    def turned(card: Any) -> str | None:
        return symbols[card] if moves_below([card], len(symbols), 1) else None

    return Challenge(
        "Turn over two cards at a time, and find all pairs.",
        tuple(f"click 'Card {card + 1}'" for pair in pairs for card in pair),
        equals(pairs),
        shown={"count": len(symbols)},
        ask=turned,
    )


def simon(rng: random.Random) -> Challenge:
    pads = ["red", "green", "blue", "yellow"]
    order = [rng.choice(pads) for _ in range(6)]
    return Challenge(
        "Click Begin, and watch which pads light up: each for two seconds, then a second without "
        "light. After the sixth, click the pads in the same order.",
        ("click 'Begin'", "wait 19", *(f"click '{pad}'" for pad in order)),
        equals(order),
        shown={"pads": pads, "order": order},
    )


def hanoi(rng: random.Random) -> Challenge:
    names, disks = "ABC", 4
    target = rng.randrange(3)
    ways = _ways_to((target,) * disks)
    start = rng.choice([state for state, moves in sorted(ways.items()) if 4 <= len(moves) <= 7])

    def proof(given: Any) -> bool:
        if not moves_below(given, 3, 400):
            return False
        state = start
        for source, end in zip(given[::2], given[1::2], strict=False):
            after = _moved(state, source, end)
            if after is None:
                return False
            state = after
        return state == (target,) * disks

    clicks = [names[peg] for move in ways[start] for peg in move]
    return Challenge(
        f"Bring all disks to peg {names[target]}: one at a time, never a larger one on a smaller "
        "one. Click the peg to take from, then the peg to put it on.",
        tuple(f"click 'Peg {name}'" for name in clicks),
        proof,
        shown={"start": start, "target": target},
    )


def _moved(state: tuple[int, ...], source: int, target: int) -> tuple[int, ...] | None:
    """Return the pegs of all disks, from the smallest, after the uppermost of a peg has moved.

    None: there is none, or a smaller one lies on the target.
    """
    if source not in state or target in state[: state.index(source) + 1]:
        return None
    disk = state.index(source)
    return (*state[:disk], target, *state[disk + 1 :])


def _ways_to(goal: tuple[int, ...]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Return the shortest way to the goal from each state, as moves from peg to peg."""
    ways: dict[tuple[int, ...], list[tuple[int, int]]] = {goal: []}
    queue = [goal]
    for state in queue:  # breadth first; each move can be undone
        for source, target in permutations(range(3), 2):
            before = _moved(state, source, target)
            if before is not None and before not in ways:
                ways[before] = [(target, source), *ways[state]]
                queue.append(before)
    return ways


def sliding_puzzle(rng: random.Random) -> Challenge:
    tiles: list[int] = [*range(1, 9), 0]
    scrambled: list[int] = []
    while len(scrambled) < 12 or tiles == [*range(1, 9), 0]:
        free = tiles.index(0)
        near = [
            tiles[at] for at in range(9) if _adjacent(at, free) and tiles[at] not in scrambled[-1:]
        ]
        scrambled.append(rng.choice(near))
        _slide(tiles, scrambled[-1])
    start = list(tiles)

    def proof(given: Any) -> bool:
        now = list(start)
        if not moves_below(given, 9, 2000):
            return False
        return all(_slide(now, tile) for tile in given) and now == [*range(1, 9), 0]

    return Challenge(
        "Slide the tiles into the order 1 to 8, with the gap at the end: a click moves a tile that "
        "is next to the gap into it.",
        tuple(f"click 'Tile {tile}'" for tile in reversed(scrambled)),
        proof,
        shown={"tiles": start},
    )


def _adjacent(one: int, other: int) -> bool:
    """Return whether two cells of a board of 3 × 3 share a side."""
    return abs(one % 3 - other % 3) + abs(one // 3 - other // 3) == 1


def _slide(tiles: list[int], tile: int) -> bool:
    """Slide a tile into the gap; return whether it was next to it."""
    at, free = tiles.index(tile), tiles.index(0)
    if not _adjacent(at, free):
        return False
    tiles[at], tiles[free] = 0, tile
    return True


def lights_out(rng: random.Random) -> Challenge:
    presses = sorted(rng.sample(range(16), 6))

    def proof(given: Any) -> bool:
        if not moves_below(given, 16, 2000):
            return False
        return not _lit(presses) ^ _lit(given)

    return Challenge(
        "A click on a lamp switches it and its neighbours above, below, left and right. Switch all "
        "lamps off.",
        tuple(f"click 'Lamp {lamp + 1}'" for lamp in presses),
        proof,
        shown={"lit": sorted(_lit(presses))},
    )


def _lit(presses: Sequence[int]) -> frozenset[int]:
    """Return the lamps of 4 × 4 that are lit after presses, if none was before."""
    lit: set[int] = set()
    for lamp in presses:
        x, y = lamp % 4, lamp // 4
        cross = [(x, y), (x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
        lit ^= {4 * down + right for right, down in cross if 0 <= right < 4 and 0 <= down < 4}
    return frozenset(lit)


def catch_star(rng: random.Random) -> Challenge:
    wanted, *others = rng.sample(("red", "green", "blue", "orange"), 4)
    colours = [rng.choice((wanted, *others)) for _ in range(40)]
    places = [[rng.randrange(0, 700), rng.randrange(60, 360)] for _ in colours]
    for at in rng.sample(range(1, 12), 3):
        colours[at] = wanted
    right = [at for at, colour in enumerate(colours) if colour == wanted][:3]
    plan, now = ["click 'Begin'"], 1
    for at in right:
        middle = STAR * at + 1
        plan += [f"wait {middle - now}"] if middle > now else []
        plan.append("click 'Star'")
        now = max(middle, now) + 1

    def proof(given: Any) -> bool:
        if not moves_below(given, len(colours), 3):
            return False
        return len({*given}) == 3 and all(colours[at] == wanted for at in given)

    return Challenge(
        f"Click Begin. Every {STAR} seconds the star moves and takes another colour. Click it in "
        f"three places where it is {wanted}, and in no other.",
        tuple(plan),
        proof,
        shown={"colours": colours, "places": places, "seconds": STAR},
    )


def tic_tac_toe(rng: random.Random) -> Challenge:
    cells: list[int] | None = None
    while cells is None:  # not every opponent can be beaten
        preference = rng.sample(range(9), 9)
        cells = _win(preference, [])

    def reply(moves: Sequence[int]) -> int:
        return _reply(preference, moves)

    def replied(given: Any) -> int | None:
        over = not moves_below(given, 9, 8) or len({*given}) < len(given) or len(given) % 2 == 0
        return None if over else reply(given)

    def proof(given: Any) -> bool:
        if not moves_below(given, 9, 9) or len({*given}) < len(given):
            return False
        honest = all(given[n] == reply(given[:n]) for n in range(1, len(given), 2))
        return honest and not _won({*given[1::2]}) and _won({*given[::2]})

    return Challenge(
        "Win against the opponent: you are X, and begin.",
        tuple(f"click 'Cell {cell + 1}'" for cell in cells[::2]),
        proof,
        ask=replied,
    )


def _won(cells: set[int]) -> bool:
    return any({*line} <= cells for line in LINES)


def _reply(preference: Sequence[int], moves: Sequence[int]) -> int:
    """Return the opponent's cell: one that wins or prevents a win, else the first that it prefers.

    Args:
        preference: all cells; those that are taken do not count.
        moves: the cells of both so far, the person's first.
    """
    free = [cell for cell in preference if cell not in moves]
    for side in ({*moves[1::2]}, {*moves[::2]}):
        for cell in free:
            if _won(side | {cell}):
                return cell
    return free[0]


def _win(preference: Sequence[int], moves: list[int]) -> list[int] | None:
    """Return the cells of both to a win of the person from here; None: there is none."""
    for cell in preference:
        if cell in moves:
            continue
        after = [*moves, cell]
        if _won({*after[::2]}):
            return after
        if len(after) == 9:
            return None
        answered = [*after, _reply(preference, after)]
        found = None if _won({*answered[1::2]}) else _win(preference, answered)
        if found is not None:
            return found
    return None


PLAY: Mapping[str, Maker] = {
    "maze": maze, "memory-pairs": memory_pairs, "simon": simon, "hanoi": hanoi,
    "sliding-puzzle": sliding_puzzle, "lights-out": lights_out, "catch-star": catch_star,
    "tic-tac-toe": tic_tac_toe,
}  # fmt: skip
