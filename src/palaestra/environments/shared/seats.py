"""Shared parts of games with several seats: seats, random numbers, and moves as text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from palaestra.core.task import Split, Task

SELF = "self"  # in place of an opponent: every seat is a player
SEPARATOR = ":"  # between the game and the opponent
OVER = "The game is over."
NOT_YOUR_TURN = "It is not your turn."
REMEDY = "choose a game by its name instead"  # for a task that has parameters
LISTED = 40  # the most moves that an observation lists; of more, it gives examples
EXAMPLES = 12
EDGES = " \"'`*>.;"  # a prompt, quotation, emphasis and stops around a move


def seat_of(task: Task, seats: int) -> int:
    """Return the agent's seat: the task's number within its split, modulo the number of seats."""
    return task.seed // len(Split) % seats


def rng_for(task: Task, *place: object) -> random.Random:
    """Return the random generator for one move at that place of the game.

    It is seeded by the task and the place, so snapshots need not store it, and two games of the
    same task sample the same numbers there, independent of the players.
    """
    return random.Random(" ".join(map(str, (task.seed, *place))))


def parse(text: str, moves: Iterable[str]) -> str | None:
    """Return the move in a text's first line; case is ignored unless moves differ in it (chess)."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    known = list(moves)
    if line in known:
        return line
    wanted = _plain(line)
    fitting = [word for word in known if _plain(word) == wanted] if wanted else []
    return fitting[0] if len(fitting) == 1 else None


def listing(moves: Mapping[str, int]) -> str:
    """Return the moves in one line, or examples if there are more than `LISTED`."""
    words = list(moves)
    if len(words) <= LISTED:
        return f"Moves: {', '.join(words)}"
    some = [words[i * len(words) // EXAMPLES] for i in range(EXAMPLES)]
    return f"Moves: {len(words)}, such as {', '.join(some)}"


def _plain(word: str) -> str:
    return " ".join(word.casefold().split()).strip(EDGES)
