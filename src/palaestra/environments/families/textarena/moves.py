"""Candidate moves of TextArena's games, in the package's formats.

The package has no list of legal actions. For most games all moves of the right format can be
listed, and the package decides which are legal when they are tried. `MOVES` has these lists,
`SAMPLED` samples moves of games with too many of them, and `TALK` has messages for games that
accept any text. All moves follow from the game's settings in the package's registry.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

Settings = Mapping[str, Any]
Moves = Callable[[Settings], list[str]]

CARDS = "A 2 3 4 5 6 7 8 9 10 J Q K".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIRECTIONS = ("[up]", "[down]", "[left]", "[right]")
QUEEN = tuple((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0))
STRAIGHT = tuple(step for step in QUEEN if 0 in step)
KNIGHT = tuple((x, y) for x in (-2, -1, 1, 2) for y in (-2, -1, 1, 2) if abs(x) != abs(y))


def fixed(*moves: str) -> Moves:
    """Return moves that do not depend on the settings."""
    return lambda settings: list(moves)


def numbers(pattern: str, *counts: int) -> Moves:
    """Fill the pattern with every combination of numbers below `counts`."""
    return lambda settings: _filled(pattern, *map(range, counts))


def _filled(pattern: str, *values: Any) -> list[str]:
    return [pattern.format(*chosen) for chosen in itertools.product(*values)]


def _square(pattern: str, size: str, *, first: int = 0) -> Moves:
    """Fill the pattern with every row and column of a board; `size` names its setting."""

    def moves(settings: Settings) -> list[str]:
        places = range(first, first + settings[size])
        return _filled(pattern, places, places)

    return moves


def _steps(size: int, directions: tuple[tuple[int, int], ...], longest: int = 1) -> list[Any]:
    """Return pairs of cells on a board, as (column, row, column, row)."""
    found = []
    for column, row in itertools.product(range(size), repeat=2):
        for (dx, dy), far in itertools.product(directions, range(1, longest + 1)):
            x, y = column + dx * far, row + dy * far
            if 0 <= x < size and 0 <= y < size:
                found.append((column, row, x, y))
    return found


def _board(pattern: str, size: int, directions: Any, longest: int = 1) -> list[str]:
    """Return moves such as a2a3 for all pairs of cells: letter columns, rows from 1."""
    small = LETTERS.lower()
    return [
        pattern.format(f"{small[column]}{row + 1}", f"{small[x]}{y + 1}")
        for column, row, x, y in _steps(size, directions, longest)
    ]


def _bandit(settings: Settings) -> list[str]:
    return [f"[{button}]" for button in settings["buttons"]]


def _countdown(settings: Settings) -> list[str]:
    places = range(len(settings["numbers"]))
    return _filled("[{} {} {}]", places, places, "+-*/")


def _cryptarithm(settings: Settings) -> list[str]:
    letters = sorted({letter for letter in settings["equation"] if letter.isalpha()})
    return _filled("[{} {}]", letters, range(10))


def _guess(settings: Settings) -> list[str]:
    low, high = settings["min_number"], settings["max_number"]
    return _filled("[{}]", range(low, high + 1))


def _minesweeper(settings: Settings) -> list[str]:
    return _filled("[{} {}]", range(settings["rows"]), range(settings["cols"]))


def _slitherlink(settings: Settings) -> list[str]:
    rows, columns = settings["rows"], settings["cols"]
    return [
        *_filled("[h {} {}]", range(rows + 1), range(columns)),
        *_filled("[v {} {}]", range(rows), range(columns + 1)),
    ]


def _battleship(settings: Settings) -> list[str]:
    size = settings["grid_size"]
    return _filled("[{}{}]", LETTERS[:size], range(size))


def _breakthrough(settings: Settings) -> list[str]:
    return _board("[{}{}]", settings["board_size"], [step for step in QUEEN if step[1]])


def _alquerque(settings: Settings) -> list[str]:
    return _board("[{} {}]", 5, QUEEN, longest=2)


def _crusade(settings: Settings) -> list[str]:
    return _board("[{} {}]", 8, KNIGHT)


def _lines_of_action(settings: Settings) -> list[str]:
    return _board("[{}{}]", 8, QUEEN, longest=7)


def _chopsticks(settings: Settings) -> list[str]:
    return numbers("[attack {} {}]", 2, 2)(settings) + numbers("[split {} {}]", 5, 5)(settings)


def _connect_four(settings: Settings) -> list[str]:
    return _filled("[col {}]", range(settings["num_cols"]))


def _nim(settings: Settings) -> list[str]:
    piles = enumerate(settings["piles"])
    return [f"[{pile} {count}]" for pile, size in piles for count in range(1, size + 1)]


def _golf(settings: Settings) -> list[str]:
    columns = range(1, settings["num_columns"] + 1)
    rows = range(1, settings["num_cards"] // settings["num_columns"] + 1)
    swaps = _filled("[swap {} {}]", rows, columns)
    return ["[draw]", "[take]", "[discard]", *swaps]


def _hanoi(settings: Settings) -> list[str]:
    return [f"[{a} {b}]" for a, b in itertools.permutations("ABC", 2)]


def _liars_dice(settings: Settings) -> list[str]:
    bids = _filled("[Bid: {}, {}]", range(1, 2 * settings["num_dice"] + 1), range(1, 7))
    return ["[Call]", *bids]


def _poker(settings: Settings) -> list[str]:
    sizes = [settings["big_blind"] * times for times in (1, 2, 4)]
    return ["[Check]", "[Call]", "[Fold]", *_filled("[{} {}]", ("Bet", "Raise"), sizes)]


def _ultimatum(settings: Settings) -> list[str]:
    return ["[Accept]", "[Reject]", *_filled("[Offer: ${}]", range(settings["pool"] + 1))]


def _cups(settings: Settings) -> list[str]:
    return _filled("[{}]", range(settings["num_cups"]))


def _hand(settings: Settings) -> list[str]:
    return _filled("[{}]", CARDS)


MOVES: dict[str, Moves] = {
    # one player
    "2048": fixed("[Up]", "[Down]", "[Left]", "[Right]"),
    "Bandit": _bandit,
    "Blackjack": fixed("[Hit]", "[Stand]"),
    "Countdown": _countdown,
    "Cryptarithm": _cryptarithm,
    "FrozenLake": fixed(*DIRECTIONS),
    "GuessTheNumber": _guess,
    "LightsOut": _square("[{} {}]", "size"),
    "Minesweeper": _minesweeper,
    "PegJump": lambda settings: _filled("[{} {}]", range(1, 16), range(1, 16)),
    "RushHour": lambda settings: _filled("[{}{}]", LETTERS, "+-"),
    "Secretary": fixed("[accept]", "[continue]"),
    "Set": lambda settings: [
        f"[{a}, {b}, {c}]" for a, b, c in itertools.combinations(range(1, 13), 3)
    ],
    "Slitherlink": _slitherlink,
    "Sokoban": fixed(*DIRECTIONS),
    "Sudoku": lambda settings: _filled("[{} {} {}]", *[range(1, 10)] * 3),
    "ThreeCardMonte": _cups,
    "TowerOfHanoi": _hanoi,
    # two players
    "Alquerque": _alquerque,
    "Battleship": _battleship,
    "Breakthrough": _breakthrough,
    "Briscola": lambda settings: _filled("[play {}]", range(1, 4)),
    "Chopsticks": _chopsticks,
    "ConnectFour": _connect_four,
    "Crusade": _crusade,
    "GameOfPureStrategy": _hand,
    "GermanWhist": lambda settings: _filled("[play {}]", range(1, 14)),
    "Golf": _golf,
    "HighSociety": lambda settings: _filled("[{}]", range(1, 12)),
    "IndianPoker": fixed("[check]", "[call]", "[fold]", "[bet 1]", "[bet 2]", "[raise 1]"),
    "IteratedMatchingPennies": fixed("[heads]", "[tails]"),
    "IteratedRockPaperScissors": fixed("[rock]", "[paper]", "[scissors]"),
    "IteratedTwoThirdsAverage": lambda settings: _filled("[{}]", range(101)),
    "IteratedUltimatumGame": _ultimatum,
    "KuhnPoker": fixed("[check]", "[bet]", "[call]", "[fold]"),
    "LinesOfAction": _lines_of_action,
    "MemoryGame": lambda settings: _filled("[{} {} {} {}]", *[range(settings["grid_size"])] * 4),
    "Nim": _nim,
    "Othello": _square("[{}, {}]", "board_size"),
    "PigDice": fixed("[roll]", "[hold]"),
    "SimpleTak": lambda settings: _filled("[{}]", range(settings["board_size"] ** 2)),
    "Snake": fixed(*DIRECTIONS),
    "Surround": fixed(*DIRECTIONS),
    "TicTacToe": numbers("[{}]", 9),
    "WildTicTacToe": lambda settings: _filled("[{} {}]", "XO", range(9)),
    # more players
    "LiarsDice": _liars_dice,
    "Poker": _poker,
    "ThreePlayerGOPS": _hand,
    "ThreePlayerTicTacToe": numbers("[{}]", 25),
}
"""All moves in the format of a game, by its name without version and variant."""

ALONE = (
    *("2048", "Bandit", "Blackjack", "Countdown", "Cryptarithm"),
    *("FrozenLake", "GuessTheNumber", "LightsOut", "Mastermind", "Minesweeper", "PegJump"),
    *("RushHour", "Secretary", "Set", "Slitherlink", "Sokoban", "Sudoku", "ThreeCardMonte"),
    "TowerOfHanoi",
)
"""Games for one player."""

SEATS = {
    "MarketEntryGame": 4,
    "PublicGoodsGame": 3,
    "SecretMafia": 6,
    "Taboo": 4,
    "ThreePlayerGOPS": 3,
    "ThreePlayerIPD": 3,
    "ThreePlayerTicTacToe": 3,
}
"""Numbers of players other than one or two; if the package allows several, its default or its
minimum."""

OUTCOMES = {"Minesweeper": "You hit a mine", "Sudoku": "violates Sudoku rules"}
"""Reasons of invalid moves that reveal hidden information. Such a move counts as a move, as in the
package, which forgives the first and ends the game at the second in a row."""

CLOSED = ("Snake", "Surround")
"""Games in which the package lets a player die of an invalid move. Here invalid moves are refused
as in other games: only listed moves are passed on."""


ANSWERS: dict[str, Callable[[Any], str]] = {
    "GuessTheNumber": lambda game: f"[{game.game_number}]",
    "Mastermind": lambda game: f"[{' '.join(map(str, game.state.game_state['secret_code']))}]",
}
"""The move that wins at once, from the package's game, where a secret has to be found out."""


# ── games with too many moves to list ────────────────────────────────────────


def _mastermind(settings: Settings, rng: random.Random) -> str:
    digits, length = range(1, settings["num_numbers"] + 1), settings["code_length"]
    again = settings["duplicate_numbers"]
    code = rng.choices(digits, k=length) if again else rng.sample(digits, length)
    return f"[{' '.join(map(str, code))}]"


def _blotto(settings: Settings, rng: random.Random) -> str:
    fields = LETTERS[: settings["num_fields"]]
    sampled = rng.choices(fields, k=settings["num_total_units"])
    return f"[{' '.join(f'{name}{sampled.count(name)}' for name in fields)}]"


def _new_recruit(settings: Settings, rng: random.Random) -> str:
    offer = f"[Propose] {' '.join(rng.choices('ABCDE', k=8))}"
    return rng.choice((offer, "[Accept]", "[Reject]"))


def _stratego(settings: Settings, rng: random.Random) -> str:
    column, row, x, y = rng.choice(_steps(10, STRAIGHT))
    return f"[{LETTERS[row]}{column} {LETTERS[y]}{x}]"


def _two_dollar(settings: Settings, rng: random.Random) -> str:
    offer = f"That is fair. [Propose] ${rng.randrange(201) / 100:.2f}"
    return rng.choice((offer, "[Accept]", "[Reject]"))


SAMPLED: dict[str, Callable[[Settings, random.Random], str]] = {
    "ColonelBlotto": _blotto,
    "Mastermind": _mastermind,
    "NewRecruit": _new_recruit,
    "Stratego": _stratego,
    "TwoDollar": _two_dollar,
}

TALK: dict[str, tuple[str, ...]] = {
    "IteratedPrisonersDilemma": ("Let us cooperate.", "[Cooperate]", "[Defect]"),
    "MarketEntryGame": ("{I stay out.}", "[E]", "[S]"),
    "PublicGoodsGame": ("{Let us all give.}", "[0]", "[10]", "[20]"),
    "SecretMafia": ("I know nothing.", *(f"[{player}]" for player in range(6))),
    "SimpleBlindAuction": ("I want nothing.", "[Bid on Item 0: 50] [Bid on Item 1: 100]"),
    "SimpleNegotiation": ("No.", "[Accept]", "[Deny]", "[Offer: 1 Wheat -> 1 Ore]"),
    "Taboo": ("It is a thing.", "[chair]"),
    "ThreePlayerIPD": ("Let us cooperate.", "[0 defect] [1 defect] [2 defect]", "[1 cooperate]"),
    "TruthAndDeception": ("The first is true.", "[Fact 1]", "[Fact 2]"),
}
"""Conversations, in which any text is an action: the messages of a random player."""
