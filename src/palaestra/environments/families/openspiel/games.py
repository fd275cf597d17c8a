"""OpenSpiel's games: which are supported, what their seats see, and what is at stake."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import pyspiel

from palaestra.core.environment import Stakes
from palaestra.environments.families.openspiel.opponents import RANDOM, forms, load
from palaestra.environments.shared.seats import SEPARATOR

EXCLUDED = {
    "crossword": "its actions are structures, not a list of moves",
    "quoridor": "the package itself warns that its implementation has known issues",
}
"""Games that load but are excluded. Three kinds are excluded as a whole: mean field games (mfg_*,
which have no seats), games whose chance the package samples internally (negotiation,
stones_and_gems, tarok, bridge_uncontested_bidding: a task's seed could not determine it), and games
that do not load by name alone (they need a file, a payoff matrix or another game)."""

OBSERVED = ("battleship", "blackjack", "kriegspiel", "oshi_zumo", "solitaire")
"""Games with hidden information whose information state is a list of numbers or a long history;
their observation shows the same as a picture."""

NOTES = {
    "connect_four": "A move is your mark and a column, counted from 0.",
    "kuhn_poker": (
        "You see your card (0 is low, 2 is high), then the moves so far (p for Pass, b for Bet)."
    ),
    "leduc_poker": "Cards are 0 to 5; 0 and 1 are a pair, as are 2 and 3, and 4 and 5.",
    "liars_dice": (
        "You see your die, then the bids so far. 2-5 bids that two dice show 5; a 6 counts as any."
    ),
    "tic_tac_toe": "A move is your mark and (row,column), counted from 0.",
}


def sees_information_state(kind: Any) -> bool:
    """Return whether a seat is shown its information state instead of its observation."""
    if not kind.provides_observation_string:
        return True
    hidden = kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION
    shown = hidden and kind.short_name not in OBSERVED
    return bool(shown and kind.provides_information_state_string)


def stakes(title: str) -> Stakes:
    """Return what the package says of a game's returns; a forfeit has the least of them."""
    utility = pyspiel.GameType.Utility
    returns: Literal["zero-sum", "common", "general"] = "general"
    if kinds()[title].utility == utility.ZERO_SUM:
        returns = "zero-sum"
    elif kinds()[title].utility == utility.IDENTICAL:
        returns = "common"
    return Stakes(returns, forfeit=float(load(title).min_utility()))


@lru_cache(maxsize=1)
def kinds() -> dict[str, Any]:
    """Return the package's descriptions of the supported games, by name."""
    sampled = pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
    mean_field = pyspiel.GameType.Dynamics.MEAN_FIELD
    return {
        kind.short_name: kind
        for kind in pyspiel.registered_games()
        if kind.default_loadable
        and kind.chance_mode != sampled
        and kind.dynamics != mean_field
        and kind.short_name not in EXCLUDED
    }


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    found = []
    for title, kind in kinds().items():
        alone = kind.min_num_players == 1 and load(title).num_players() == 1
        found += [
            f"{title}{SEPARATOR if form else ''}{form}"
            for form in ([RANDOM] if alone else forms(kind))
        ]
    return tuple(found)
