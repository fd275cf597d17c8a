"""OpenSpiel: board, card, dice and matrix games, against an opponent or in self-play.

Ids: `openspiel/NAME` against random moves, `NAME:optimal`, `NAME:equilibrium`, `NAME:mcts`
against better opponents (see `opponents.py`), and `NAME:self` with every seat a player. NAME is
the package's (`tic_tac_toe`, `kuhn_poker`, …): all its games that load by name alone, can be
rendered as text and let us sample chance; `EXCLUDED` lists the others with reasons. Games with
simultaneous moves are played in the package's turn-based form, which hides the moves made.

Source: Lanctot et al. 2019. Faithful: rules, moves in the package's words, what a seat sees
(except for blank lines around it), returns. Ours: one line names the agent's seat, and one lists
the moves. Each move's chance and opponents have an rng seeded from the task and the move's number,
so equal seeds deal equal first cards to every agent.

The agent's seat is the task's number modulo the number of seats. Success is a strictly positive
return at the end; in self-play, the first player's. In a game of points, where no return is
negative (2048, solitaire), success is hardly informative: compare rewards instead. Rewards are the
package's returns, when it gives them: in most games at the end.

The oracle (tic_tac_toe, nim, nim:optimal) searches all the agent's moves, best first, against this
task's opponent. It knows the random numbers to come; an empty plan means that the game is lost.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal

import pyspiel

from palaestra.core.environment import (
    Action,
    Capability,
    Multiplayer,
    Observation,
    Spec,
    Stakes,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.openspiel.opponents import (
    RANDOM,
    Opponent,
    forms,
    load,
    move_values,
    opponent,
)
from palaestra.environments.shared import seats as moves
from palaestra.environments.shared.seats import (
    SELF,
    SEPARATOR,
    listing,
    parse,
    rng_for,
    seat_of,
)

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

FORESEEN = ("nim", "nim:optimal", "tic_tac_toe")
"""Names with an oracle; tic_tac_toe:optimal has none, because it cannot be won."""

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
LONGEST_EPISODE = 200  # upper bound of `typical_turns`, in moves of one seat
VERSION = version("open_spiel")


class OpenSpiel(
    Adapter,
    Multiplayer,
    id="openspiel",
    version="2",  # since version 2, success in self-play is the first player's
    capabilities={"state_key", "snapshot", "admissible"},
):
    """One seat, or all seats, of a game."""

    OVER = moves.OVER

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._title, _, self._form = name.partition(SEPARATOR)
        self._game: Any = load(self._title)
        self._kind = _kinds()[self._title]
        self._opponent: Opponent | None = None  # created on first use, which may take time
        self._informed = _sees_information_state(self._kind)
        self._deal = 0  # number of deals of this task that were discarded
        self._state: Any = None
        self._seat = 0  # the seat that acts next; at the end, the one that acted last
        self._moves: dict[str, int] = {}  # legal actions of that seat, by their words

    @classmethod
    def names(cls) -> list[str]:
        return list(_names())

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Set `typical_turns` to the longest possible game, at most 200 moves per seat."""
        spec, (title, _, form) = super().spec_of(name), name.partition(SEPARATOR)
        if name in FORESEEN:
            spec = replace(spec, capabilities=spec.capabilities | {Capability.ORACLE})
        longest, seats = load(title).max_game_length(), load(title).num_players()
        if form != SELF:
            return replace(spec, typical_turns=int(min(-(-longest // seats), LONGEST_EPISODE)))
        players = tuple(f"player{seat}" for seat in range(seats))
        return replace(
            spec,
            players=players,
            stakes=_stakes(title),
            typical_turns=int(min(longest, seats * LONGEST_EPISODE)),
        )

    @property
    def instructions(self) -> str:
        seats = self._game.num_players()
        among = f" with {seats} players" if seats > 1 else ""
        note = NOTES.get(self._title, "")
        return (
            f"You play {self._kind.long_name}{among}. Reply with one of the moves and nothing else."
            f"{' ' if note else ''}{note}"
        )

    def _begin(self, task: Task) -> Observation:
        """Start a game; one that ends before the agent can move is dealt again.

        Raises:
            InputError: the task has parameters; choose a game by the environment's name.
        """
        without_parameters(task, moves.REMEDY)
        self._deal = -1
        self._state = None
        while self._state is None or self._state.is_terminal():
            self._deal += 1
            self._state = self._game.new_initial_state()
            self._advance(self._state)
        self._look()
        return Observation(self._render(self._seat))

    def _act(self, action: Action) -> Transition:
        state = self._running()
        word = self.move(action.text)
        if word is None:
            return refused(f"That is not one of the moves. {listing(self._moves)}")
        seat, before = self._seat, self._returns()
        state.apply_action(self._moves[word])
        self._advance(state)
        self._look()
        gained = [now - then for now, then in zip(self._returns(), before, strict=True)]
        over = bool(state.is_terminal())
        self_play = self._form == SELF
        return Transition(
            Observation(self._render(self._seat)),
            reward=gained[seat],
            terminated=over,
            success=over and state.returns()[0 if self_play else seat] > 0,
            rewards=dict(zip(self.spec.players, gained, strict=True)) if self_play else {},
        )

    def close(self) -> None:
        self._state = None

    def acting(self) -> tuple[str, ...]:
        if self._running().is_terminal():
            return ()
        return (self.spec.players[self._seat if self._form == SELF else 0],)

    def observe(self, player: str) -> Observation:
        seat = self._seat if self._form != SELF else self.spec.players.index(player)
        return Observation(self._render(seat))

    def state_key(self) -> str:
        """Hash the seed and the history; hidden cards and future chance follow from them."""
        history = self._running().history()
        return hashed(self.spec.name, self._current().seed, self._deal, history)

    def admissible(self) -> list[str]:
        self._running()
        return list(self._moves)

    def information_state(self) -> str:
        """Return the package's information state of the seat to move."""
        return str(self._running().information_state_string(self._seat))

    def move(self, text: str) -> str | None:
        """Return the legal move that a reply names, in the package's words, or None."""
        return parse(text, self._moves)

    def snapshot(self) -> bytes:
        """Save the package's serialisation; the rng follows from the task."""
        state = pyspiel.serialize_game_and_state(self._game, self._running())
        return self._saved(f"{self._deal} {self._seat}\n{state}".encode(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Continue from `snapshot`; raise InputError if it is not of this game and opponent."""
        numbers, _, state = self._loaded(snapshot, VERSION).decode().partition("\n")
        self._deal, self._seat = map(int, numbers.split())
        _, self._state = pyspiel.deserialize_game_and_state(state)
        self._look()

    def oracle(self) -> list[Action]:
        """Return a winning plan, or [] if none exists; tries the best moves first."""
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        tried: set[tuple[int, str]] = set()
        values = move_values(self._title)

        def search(state: Any) -> list[str] | None:
            if state.is_terminal():
                return [] if state.returns()[self._seat] > 0 else None
            here = (state.move_number(), str(state))
            if here in tried:
                return None
            tried.add(here)
            for action, _ in sorted(values(state).items(), key=lambda move: -move[1]):
                after = state.child(action)
                self._advance(after)
                rest = search(after)
                if rest is not None:
                    return [state.action_to_string(action).strip(), *rest]
            return None

        state = self._running()
        return [] if state.is_terminal() else [Action(word) for word in search(state) or ()]

    # ── details ──────────────────────────────────────────────────────────────

    def _advance(self, state: Any) -> None:
        """Play chance and the opponents until a player's turn or the end."""
        assigned = self._assigned
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes, weights = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(self._rng(state).choices(outcomes, weights)[0])
            elif assigned is None or state.current_player() == assigned:
                break
            else:
                if self._opponent is None:
                    self._opponent = opponent(self._form, self._title)
                state.apply_action(self._opponent(state, self._rng(state)))

    def _look(self) -> None:
        """Update the seat to move and its legal moves."""
        state = self._running()
        self._moves = {}
        if state.is_terminal():
            self._seat = self._seat if self._assigned is None else self._assigned
            return
        self._seat = state.current_player()
        for action in state.legal_actions():
            self._moves[state.action_to_string(self._seat, action).strip()] = action

    @property
    def _assigned(self) -> int | None:
        """The agent's seat; None in self-play."""
        if self._form == SELF:
            return None
        return seat_of(self._current(), self._game.num_players())

    def _rng(self, state: Any) -> random.Random:
        return rng_for(self._current(), self._deal, state.move_number())

    def _returns(self) -> list[float]:
        """Return each seat's return so far; in most games it is 0 before the end."""
        state = self._running()
        if state.is_terminal() or self._kind.reward_model == pyspiel.GameType.RewardModel.REWARDS:
            return list(map(float, state.returns()))
        return [0.0] * self._game.num_players()

    def _render(self, seat: int) -> str:
        state = self._running()
        alone = self._game.num_players() == 1
        seen = self._view(seat)
        if not state.is_terminal():
            who = "" if alone else f"You are player {seat}.\n"
            moves = listing(self._moves) if seat == self._seat else "It is not your turn."
            return f"{who}{seen}\n{moves}"
        returns = state.returns()
        if self._form == SELF:
            each = ", ".join(f"player {seat} {value:g}" for seat, value in enumerate(returns))
            return f"{seen}\nThe game is over. Returns: {each}."
        return f"{seen}\nThe game is over. Your return: {returns[seat]:g}."

    def _view(self, seat: int) -> str:
        """Return the package's text of what that seat sees."""
        state = self._running()
        if self._informed:
            seen = state.information_state_string(seat)
        else:
            seen = state.observation_string(seat)
        return str(seen).strip("\n")

    def _running(self) -> Any:
        if self._state is None:
            raise InputError(
                f"The environment '{self.spec.id}' has no game yet; call reset with a task first."
            )
        return self._state


def _sees_information_state(kind: Any) -> bool:
    """Return whether a seat is shown its information state instead of its observation."""
    if not kind.provides_observation_string:
        return True
    hidden = kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION
    shown = hidden and kind.short_name not in OBSERVED
    return bool(shown and kind.provides_information_state_string)


def _stakes(title: str) -> Stakes:
    """Return what the package says of a game's returns; a forfeit gets the least of them."""
    utility = pyspiel.GameType.Utility
    returns: Literal["zero-sum", "common", "general"] = "general"
    if _kinds()[title].utility == utility.ZERO_SUM:
        returns = "zero-sum"
    elif _kinds()[title].utility == utility.IDENTICAL:
        returns = "common"
    return Stakes(returns, forfeit=float(load(title).min_utility()))


@lru_cache(maxsize=1)
def _kinds() -> dict[str, Any]:
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
def _names() -> tuple[str, ...]:
    found = []
    for title, kind in _kinds().items():
        alone = kind.min_num_players == 1 and load(title).num_players() == 1
        found += [
            f"{title}{SEPARATOR if form else ''}{form}"
            for form in ([RANDOM] if alone else forms(kind))
        ]
    return tuple(found)
