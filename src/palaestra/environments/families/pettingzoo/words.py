"""Text renderers of PettingZoo's observations, and the names of its actions.

Each renderer sees only what the package lets one seat observe. The package documents the meaning of
the numbers. Action names are the package's, in lower case (cells and columns are numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.environment import Stakes

Renderer = Callable[[Any, int], str]
"""(observation, number of the observing seat) -> text."""

MARKS = "xo"  # of the first and the second seat
LEDUC, SUITS, RANKS = "JQK", "SHDC", "A23456789TJQK"
POKER = ("call", "raise", "fold", "check")
NO_LIMIT = ("fold", "check or call", "raise half the pot", "raise the pot", "all in")
HANDS = ("rock", "paper", "scissors")
DIRECTIONS = ("left", "right", "up", "down", "stay")
SIGHT = 3  # cells that a pursuer sees in each direction


@dataclass(frozen=True, slots=True)
class Game:
    """One of the package's environments with its text interface."""

    id: str  # the package's
    seats: tuple[str, ...]  # the package's names of the agents
    words: tuple[str, ...]  # names of the actions, in the package's order
    render: Renderer
    rules: str
    turns: int  # of one seat, in a long game
    stakes: Stakes  # of self-play; a forfeit has the least return of a game
    match: bool = False  # the package's limit of rounds terminates the game
    together: bool = False  # cooperative: all win when the package terminates the game
    simultaneous: bool = False  # no seat sees the moves of the others in the same round
    arguments: Mapping[str, Any] = field(default_factory=dict)


def tictactoe(seen: Any, seat: int) -> str:
    """Render the board with the numbers of free cells, which are the moves."""
    marks = enumerate(_marks(seen["observation"], seat))
    rows = [
        " ".join(mark or str(3 * row + column) for column, mark in enumerate(cells))
        for row, cells in marks
    ]
    return "\n".join([f"You are {MARKS[seat]}.", *rows])


def connect_four(seen: Any, seat: int) -> str:
    """Render the board under the numbers of its columns."""
    rows = [" ".join(mark or "." for mark in row) for row in _marks(seen["observation"], seat)]
    return "\n".join([f"You are {MARKS[seat]}.", "0 1 2 3 4 5 6", *rows])


def rock_paper_scissors(seen: Any, seat: int) -> str:
    last = int(seen)
    return f"The other's last move: {HANDS[last] if last < len(HANDS) else 'none yet'}."


def leduc(seen: Any, seat: int) -> str:
    vector = seen["observation"]
    mine, shown = _ones(vector[0:3]), _ones(vector[3:6])
    return (
        f"Your card: {_cards(LEDUC[card] for card in mine)}. "
        f"Open card: {_cards(LEDUC[card] for card in shown)}. "
        f"Chips in the pot: you {_ones(vector[6:21])[0]}, the other {_ones(vector[21:36])[0]}."
    )


def limit_holdem(seen: Any, seat: int) -> str:
    vector = seen["observation"]
    raises = [_ones(vector[start : start + 5]) for start in (52, 57, 62, 67)]
    counts = ", ".join(str(found[0] if found else 0) for found in raises)
    return f"{_hand(vector)} Raises in the four rounds: {counts}."


def no_limit_holdem(seen: Any, seat: int) -> str:
    vector = seen["observation"]
    return f"{_hand(vector)} Chips in the pot: you {vector[52]:g}, the most {vector[53]:g}."


def pursuit(seen: Any, seat: int) -> str:
    """Render what is near, in steps relative to the agent and in the words of the moves."""
    walls, partners, evaders = (seen[:, :, channel] for channel in range(3))
    found: dict[str, list[str]] = {"evaders": [], "partners": []}
    cells = [(row, column) for row in range(2 * SIGHT + 1) for column in range(2 * SIGHT + 1)]
    cells.sort(key=lambda cell: (abs(cell[0] - SIGHT) + abs(cell[1] - SIGHT), cell))
    for row, column in cells:
        here = row == column == SIGHT
        place = _where(row - SIGHT, column - SIGHT)
        found["evaders"] += [place] * int(evaders[row, column])
        found["partners"] += [place] * (int(partners[row, column]) - here)
    steps = {"left": (0, -1), "right": (0, 1), "up": (1, 0), "down": (-1, 0)}
    blocked = [way for way, (dy, dx) in steps.items() if walls[SIGHT + dy, SIGHT + dx]]
    parts = [f"{kind}: {', '.join(places)}" for kind, places in found.items() if places]
    parts += [f"walls: {', '.join(blocked)}"] * bool(blocked)
    return "; ".join(parts) or "nothing near"


def _where(up: int, right: int) -> str:
    parts = []
    if up:
        parts.append(f"{abs(up)} {'up' if up > 0 else 'down'}")
    if right:
        parts.append(f"{abs(right)} {'right' if right > 0 else 'left'}")
    return " ".join(parts) or "here"


def _marks(planes: Any, seat: int) -> list[list[str]]:
    """Return rows of "x", "o" or "" from the planes of the agent's and the opponent's marks."""
    own, other = MARKS[seat], MARKS[1 - seat]
    return [[own if mine else other if his else "" for mine, his in row] for row in planes]


def _hand(vector: Any) -> str:
    """List all visible cards; the package does not tell which of them are open."""
    cards = [SUITS[index // 13] + RANKS[index % 13] for index in _ones(vector[:52])]
    return f"Your cards and the open ones: {_cards(cards)}."


def _cards(cards: Any) -> str:
    return " ".join(cards) or "none"


def _ones(vector: Any) -> list[int]:
    return [index for index, value in enumerate(vector) if value > 0.5]


def _seats(count: int, first: int = 0, kind: str = "player") -> tuple[str, ...]:
    return tuple(f"{kind}_{first + seat}" for seat in range(count))


BETTING = "The winner gets half of the chips raised, the loser pays them."
HUNT = (
    "You are one of {} pursuers in a grid; catch all {} evaders. {} "
    "You see what is at most three steps away."
)

GAMES = {
    "connect_four": Game(
        *("classic/connect_four-v3", _seats(2), tuple("0123456"), connect_four),
        "Connect four in a row. A move is a column, in which your mark falls to the bottom.",
        turns=21,
        stakes=Stakes("zero-sum", forfeit=-1.0),
    ),
    "leduc_holdem": Game(
        *("classic/leduc_holdem-v4", _seats(2), POKER, leduc),
        f"A pair with the open card wins, else the higher of J, Q and K. {BETTING}",
        turns=6,
        stakes=Stakes("zero-sum", forfeit=-7.0),
    ),
    "pursuit": Game(
        *("sisl/pursuit-v5", _seats(8, kind="pursuer"), DIRECTIONS, pursuit),
        HUNT.format(8, 30, "One that is shut in by pursuers or walls on all sides is caught."),
        turns=200,
        stakes=Stakes("common", forfeit=-50.0),  # nothing caught in 500 rounds
        together=True,
    ),
    "pursuit_small": Game(
        *("sisl/pursuit-v5", _seats(4, kind="pursuer"), DIRECTIONS, pursuit),
        HUNT.format(4, 2, "One that two pursuers stand on is caught."),
        turns=50,
        stakes=Stakes("common", forfeit=-5.0),
        together=True,
        arguments={
            "x_size": 8,
            "y_size": 8,
            "n_pursuers": 4,
            "n_evaders": 2,
            "surround": False,
            "n_catch": 2,
            "max_cycles": 50,
        },
    ),
    "rps": Game(
        *("classic/rps-v2", _seats(2), HANDS, rock_paper_scissors),
        "Rock beats scissors, scissors beats paper, paper beats rock. You play 15 rounds.",
        turns=15,
        stakes=Stakes("zero-sum", forfeit=-15.0),
        match=True,
        simultaneous=True,
    ),
    "texas_holdem": Game(
        *("classic/texas_holdem-v4", _seats(2), POKER, limit_holdem),
        BETTING,
        turns=12,
        stakes=Stakes("zero-sum", forfeit=-25.0),
    ),
    "texas_holdem_no_limit": Game(
        *("classic/texas_holdem_no_limit-v6", _seats(2), NO_LIMIT, no_limit_holdem),
        BETTING,
        turns=12,
        stakes=Stakes("zero-sum", forfeit=-100.0),
    ),
    "tictactoe": Game(
        *("classic/tictactoe-v3", _seats(2, first=1), tuple("012345678"), tictactoe),
        "Three in a row win. A move is the number of a free cell.",
        turns=5,
        stakes=Stakes("zero-sum", forfeit=-1.0),
    ),
}
"""The package's environments that need no download, have discrete actions and can be rendered as
text. Excluded: Atari (needs ROMs), cooperative_pong, pistonball, knights_archers_zombies and
multiwalker (images, coordinates or continuous actions), chess (its library is GPL), go (its
observation swaps the two colours at every move) and hanabi (does not start); OpenSpiel has the
last three."""
