"""What all games with several seats have in common: whose seat, whose dice, moves in words."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task

SELF = "self"  # in place of an opponent: every seat is a player
SEPARATOR = ":"  # between the game and who plays the other seats
LISTED = 40  # moves that an observation lists; of more, it gives a few as examples
EXAMPLES = 12
EDGES = " \"'`*>.;"  # a prompt, quotation, emphasis and stops around a move


def seat_of(task: Task, seats: int) -> int:
    """The agent's seat: the task's number within its split, modulo the number of seats."""
    return task.seed // len(Split) % seats


def dice_for(task: Task, *place: object) -> random.Random:
    """Dice for one move at that place of the game.

    They follow from the task, so no snapshot needs to keep them, and two games of the same task
    meet the same chance there, whoever plays.
    """
    return random.Random(" ".join(map(str, (task.seed, *place))))


def without_parameters(task: Task) -> None:
    """Raise InputError if the task has parameters: a game's name says everything."""
    if task.parameters:
        raise InputError(
            f"These games take no parameters, but task '{task.id}' of '{task.environment}' has "
            f"{', '.join(map(repr, task.parameters))}; choose a game by its name instead."
        )


def parse(text: str, moves: Iterable[str]) -> str | None:
    """The move that the first line of a text says; case matters only where it must (chess)."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    known = list(moves)
    if line in known:
        return line
    wanted = _plain(line)
    fitting = [word for word in known if _plain(word) == wanted] if wanted else []
    return fitting[0] if len(fitting) == 1 else None


def listing(moves: Mapping[str, int]) -> str:
    """The moves in one line, or some of them where they are many."""
    words = list(moves)
    if len(words) <= LISTED:
        return f"Moves: {', '.join(words)}"
    some = [words[i * len(words) // EXAMPLES] for i in range(EXAMPLES)]
    return f"Moves: {len(words)}, such as {', '.join(some)}"


def _plain(word: str) -> str:
    return " ".join(word.casefold().split()).strip(EDGES)
