"""Opponents for the other seats of OpenSpiel games, and the games that each opponent supports.

- `random`: a uniformly random legal move.
- `optimal`: the package's exhaustive minimax solver; a uniformly random move of the best value.
- `equilibrium`: samples from the average policy of the package's CFR+ (Tammelin 2014). Its
  exploitability (see `exploitability.py`) is at most `EXPLOITABLE`, which a test verifies.
- `mcts`: the package's Monte Carlo tree search with `SIMULATIONS` simulations a move, each
  valued by one random playout.

Opponents are stateless; all randomness comes from the rng that they receive.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyspiel

from palaestra.environments.shared.seats import SELF

Opponent = Callable[[Any, random.Random], int]
"""(state in which it is to move, rng) -> the move."""

Values = Callable[[Any], dict[int, float]]
"""State -> value of each legal move to the player who makes it, under optimal play afterwards."""

RANDOM, OPTIMAL, EQUILIBRIUM, MCTS = "", "optimal", "equilibrium", "mcts"

SOLVABLE = ("nim", "tic_tac_toe")
"""Games for the minimax solver: small games whose printed board determines the player to move. (Not
dots_and_boxes: there the solver stores one value for two states, and 3,111 values are wrong.)"""

ITERATIONS = {
    "blotto": 500,
    "kuhn_poker": 10_000,
    "leduc_poker": 300,
    "matrix_brps": 10_000,
}
"""Iterations after which CFR+ is close to an equilibrium (seconds), by game; without games in which
uniformly random play is one."""

EXPLOITABLE = 0.0025
"""Upper bound of the exploitability of these policies."""

PLAIN = {"twixt": "twixt(ansi_color_output=false)"}
"""Games loaded with parameters: these keep terminal colour codes out of the board."""

SIMULATIONS = 100
EXPLORATION = 2.0  # the constant of UCT
MEGABYTES = 256  # upper bound of a search tree's memory
SEEDS = 2**31


def sequential(game_type: Any) -> bool:
    """Return whether the package describes the game as sequential."""
    return bool(game_type.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL)


@lru_cache(maxsize=16)
def load_native(title: str) -> Any:
    """Load the package's immutable game as it is, in which several seats may act at once."""
    return pyspiel.load_game(PLAIN.get(title, title))


@lru_cache(maxsize=16)
def load(title: str) -> Any:
    """Load the package's immutable game; convert simultaneous moves to turns."""
    game = load_native(title)
    return game if sequential(game.get_type()) else pyspiel.convert_to_turn_based(game)


def forms(game_type: Any) -> list[str]:
    """List the suffixes of a multi-seat game's name; the random opponent comes first."""
    perfect_information = game_type.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    terminal_rewards = game_type.reward_model == pyspiel.GameType.RewardModel.TERMINAL
    found = [RANDOM, SELF]
    if game_type.short_name in SOLVABLE:
        found.append(OPTIMAL)
    if game_type.short_name in ITERATIONS:
        found.append(EQUILIBRIUM)
    if perfect_information and terminal_rewards and sequential(game_type):
        found.append(MCTS)
    return found


def opponent(form: str, title: str) -> Opponent:
    """Make the opponent of that form for a game; this may solve the game first."""
    match form:
        case "optimal":
            return _best(move_values(title))
        case "equilibrium":
            return _sampler(equilibrium(title))
        case "mcts":
            return _searcher(load(title))
        case _:
            return _uniform


@lru_cache(maxsize=len(ITERATIONS))
def equilibrium(title: str) -> Any:
    """Compute the package's approximate equilibrium policy, once per process."""
    solver = pyspiel.CFRPlusSolver(load(title))
    for _ in range(ITERATIONS[title]):
        solver.evaluate_and_update_policy()
    return solver.tabular_average_policy()


@lru_cache(maxsize=len(SOLVABLE))
def move_values(title: str) -> Values:
    """Return the move values of a solvable game, which is solved once per process."""
    from open_spiel.python.algorithms.minimax_solver import MinimaxSolver

    solver = MinimaxSolver(title)
    solver.solve()

    def values(state: Any) -> dict[int, float]:
        table = solver.action_values_from_state(state)
        return {action: float(table[action]) for action in state.legal_actions()}

    return values


def _uniform(state: Any, rng: random.Random) -> int:
    return int(rng.choice(state.legal_actions()))


def _best(values: Values) -> Opponent:
    def best(state: Any, rng: random.Random) -> int:
        by_action = values(state)
        most = max(by_action.values())
        return rng.choice([action for action, value in by_action.items() if value == most])

    return best


def _sampler(policy: Any) -> Opponent:
    def sample(state: Any, rng: random.Random) -> int:
        actions, weights = zip(*sorted(policy.action_probabilities(state).items()), strict=True)
        return int(rng.choices(actions, weights)[0])

    return sample


def _searcher(game: Any) -> Opponent:
    def search(state: Any, rng: random.Random) -> int:
        playouts = pyspiel.RandomRolloutEvaluator(1, rng.randrange(SEEDS))
        seed = rng.randrange(SEEDS)
        bot = pyspiel.MCTSBot(
            game, playouts, EXPLORATION, SIMULATIONS, MEGABYTES, True, seed, False
        )
        return int(bot.step(state))

    return search
