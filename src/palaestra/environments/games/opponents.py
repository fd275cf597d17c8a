"""Who plays the other seats of an OpenSpiel game, and which games have which opponents.

- `random`: any legal move, each as likely.
- `optimal`: the package's exhaustive minimax solver; any move of the best value, each as likely.
- `equilibrium`: the average policy of the package's CFR+ (Tammelin 2014), drawn from. How far it
  is from an equilibrium is its exploitability (see `exploitability.py`): at most
  `EXPLOITABLE`, which a test holds it to.
- `mcts`: the package's Monte Carlo tree search with `SIMULATIONS` simulations a move, each
  valued by one random playout.

An opponent remembers nothing from move to move; all chance comes from the dice that it is given.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyspiel

from palaestra.environments.games.moves import SELF

Opponent = Callable[[Any, random.Random], int]
"""A state in which it is to move, and dice -> the move."""

Values = Callable[[Any], dict[int, float]]
"""A state -> what each legal move is worth to who makes it, if all play well after it."""

RANDOM, OPTIMAL, EQUILIBRIUM, MCTS = "", "optimal", "equilibrium", "mcts"

SOLVABLE = ("nim", "tic_tac_toe")
"""Games for the minimax solver: small ones, in which the printed board says who is to move. (Not
so dots_and_boxes: the solver keeps one value for two situations, and 3,111 of them are wrong.)"""

ITERATIONS = {
    "blotto": 500,
    "kuhn_poker": 10_000,
    "leduc_poker": 300,
    "matrix_brps": 10_000,
}
"""Games whose equilibrium CFR+ comes close to within seconds, and after how many iterations; but
none where playing at random is one."""

EXPLOITABLE = 0.0025
"""What the best answer to any of these policies wins on average, at most."""

PLAIN = {"twixt": "twixt(ansi_color_output=false)"}
"""Games that are loaded with a parameter: without it, the board has colour codes for terminals."""

SIMULATIONS = 100
EXPLORATION = 2.0  # the constant of UCT
MEGABYTES = 256  # of a search tree, at most
SEEDS = 2**31


def sequential(game_type: Any) -> bool:
    """Whether moves are made in turn, as the package knows the game."""
    return bool(game_type.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL)


@lru_cache(maxsize=16)
def load(title: str) -> Any:
    """The package's game, which never changes; simultaneous moves in their turn-based form."""
    game = pyspiel.load_game(PLAIN.get(title, title))
    if sequential(game.get_type()):
        return game
    return pyspiel.convert_to_turn_based(game)


def forms(game_type: Any) -> list[str]:
    """What may follow a game's name, if it has several seats; the random opponent comes first."""
    open_game = game_type.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    pays_at_the_end = game_type.reward_model == pyspiel.GameType.RewardModel.TERMINAL
    found = [RANDOM, SELF]
    if game_type.short_name in SOLVABLE:
        found.append(OPTIMAL)
    if game_type.short_name in ITERATIONS:
        found.append(EQUILIBRIUM)
    if open_game and pays_at_the_end and sequential(game_type):
        found.append(MCTS)
    return found


def opponent(form: str, title: str) -> Opponent:
    """The opponent of that form, for that game; solves the game where it must."""
    match form:
        case "optimal":
            return _best(move_values(title))
        case "equilibrium":
            return _drawing(equilibrium(title))
        case "mcts":
            return _searching(load(title))
        case _:
            return _uniform


@lru_cache(maxsize=len(ITERATIONS))
def equilibrium(title: str) -> Any:
    """The package's policy that is nearly an equilibrium; computed once in a process."""
    solver = pyspiel.CFRPlusSolver(load(title))
    for _ in range(ITERATIONS[title]):
        solver.evaluate_and_update_policy()
    return solver.tabular_average_policy()


@lru_cache(maxsize=len(SOLVABLE))
def move_values(title: str) -> Values:
    """What each move of a solvable game is worth to who makes it; solved once in a process."""
    from open_spiel.python.algorithms.minimax_solver import MinimaxSolver

    solver = MinimaxSolver(title)
    solver.solve()

    def values(state: Any) -> dict[int, float]:
        table = solver.action_values_from_state(state)
        return {action: float(table[action]) for action in state.legal_actions()}

    return values


def _uniform(state: Any, dice: random.Random) -> int:
    return int(dice.choice(state.legal_actions()))


def _best(values: Values) -> Opponent:
    def best(state: Any, dice: random.Random) -> int:
        worth = values(state)
        most = max(worth.values())
        return dice.choice([action for action, value in worth.items() if value == most])

    return best


def _drawing(policy: Any) -> Opponent:
    def drawn(state: Any, dice: random.Random) -> int:
        actions, chances = zip(*sorted(policy.action_probabilities(state).items()), strict=True)
        return int(dice.choices(actions, chances)[0])

    return drawn


def _searching(game: Any) -> Opponent:
    def found(state: Any, dice: random.Random) -> int:
        playouts = pyspiel.RandomRolloutEvaluator(1, dice.randrange(SEEDS))
        seed = dice.randrange(SEEDS)
        bot = pyspiel.MCTSBot(
            game, playouts, EXPLORATION, SIMULATIONS, MEGABYTES, True, seed, False
        )
        return int(bot.step(state))

    return found
