"""OpenSpiel: board, card, dice and matrix games, against an opponent or in self-play.

Ids: `openspiel/NAME` against random moves, `NAME:optimal`, `NAME:equilibrium`, `NAME:mcts`
against better opponents (see `opponents.py`), and `NAME:self` with every seat a player. NAME is
the package's (`tic_tac_toe`, `kuhn_poker`, …): all its games that load by name alone, can be
rendered as text and let us sample chance; `games.py` lists the others with reasons. In `NAME:self`
players that act at the same time do so here: their moves stay pending, and hidden, until all of
them have moved. Against opponents, such games are played in the package's turn-based form, which
hides the moves as well.

Source: Lanctot et al. 2019. Faithful: rules, moves in the package's words, what a seat sees
(except for blank lines around it), returns. Ours: one line names the agent's seat, and one lists
the moves. Each move's chance and opponents have an rng seeded from the task and the move's number,
so equal seeds deal equal first cards to every agent. A player who forfeits gets the least return
that the game has.

The agent's seat is the task's number modulo the number of seats. Success is a strictly positive
return at the end; in self-play, the first player's. In a game of points, where no return is
negative (2048, solitaire), success is hardly informative: compare rewards instead. Rewards are the
package's returns, when it gives them: in most games at the end.

The oracle (tic_tac_toe, nim, nim:optimal) searches all the agent's moves, best first, against this
task's opponent. It knows the random numbers to come; an empty plan means that the game is lost.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pyspiel

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import Multiplayer
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.openspiel import games
from palaestra.environments.families.openspiel.opponents import (
    Opponent,
    load,
    load_native,
    move_values,
    opponent,
    sequential,
)
from palaestra.environments.shared import seats as moves
from palaestra.environments.shared.seats import (
    NOT_YOUR_TURN,
    SELF,
    SEPARATOR,
    listing,
    parse,
    rng_for,
    seat_of,
)

FORESEEN = ("nim", "nim:optimal", "tic_tac_toe")
"""Names with an oracle; tic_tac_toe:optimal has none, because it cannot be won."""

LONGEST_EPISODE = 200  # upper bound of `typical_turns`, in moves of one seat
VERSION = version("open_spiel")


class OpenSpiel(
    Adapter,
    Multiplayer,
    id="openspiel",
    version="3",  # 2: success in self-play is the first player's; 3: players act at the same time
    capabilities={"state_key", "snapshot", "admissible"},
):
    """One seat, or all seats, of a game."""

    OVER = moves.OVER

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._title, _, self._form = name.partition(SEPARATOR)
        self._game: Any = (load_native if self._form == SELF else load)(self._title)
        self._kind = games.kinds()[self._title]
        self._opponent: Opponent | None = None  # created on first use, which may take time
        self._informed = games.sees_information_state(self._kind)
        self._deal = 0  # number of deals of this task that were discarded
        self._state: Any = None
        self._seat = 0  # the seat that acts next; at the end, the one that acted last
        self._legal: dict[int, dict[str, int]] = {}
        """Of each seat that acts in this round and has not moved: its actions by their words."""
        self._pending: dict[int, int] = {}  # the moves of a round that is not complete, by seat

    @classmethod
    def names(cls) -> list[str]:
        return list(games.names())

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
            stakes=games.stakes(title),
            typical_turns=int(min(longest, seats * LONGEST_EPISODE)),
        )

    @property
    def instructions(self) -> str:
        seats = self._game.num_players()
        among = f" with {seats} players" if seats > 1 else ""
        note = games.NOTES.get(self._title, "")
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
        self._deal, self._pending = -1, {}
        self._state = None
        while self._state is None or self._state.is_terminal():
            self._deal += 1
            self._state = self._game.new_initial_state()
            self._advance(self._state)
        self._look()
        return Observation(self._render(self._seat))

    def _act(self, action: Action) -> Transition:
        state, legal = self._running(), self._moves
        word = self.move(action.text)
        if word is None:
            return refused(f"That is not one of the moves. {listing(legal)}")
        seat, before = self._seat, self._returns()
        if state.is_simultaneous_node():
            self._pending[seat] = legal[word]
            if len(self._legal) == 1:  # the last move of the round
                self._complete(state)
        else:
            state.apply_action(legal[word])
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
        self._running()
        if self._form != SELF:
            return self.spec.players if self._legal else ()
        return tuple(self.spec.players[seat] for seat in self._legal)

    def observe(self, player: str) -> Observation:
        seat = self._seat if self._form != SELF else self.spec.players.index(player)
        return Observation(self._render(seat))

    def state_key(self) -> str:
        """Hash the seed and all moves, pending ones too; cards and chance follow from them."""
        history, pending = self._running().history(), sorted(self._pending.items())
        return hashed(self.spec.name, self._current().seed, self._deal, history, pending)

    def admissible(self) -> list[str]:
        self._running()
        return list(self._moves)

    def information_state(self) -> str:
        """Return the package's information state of the seat to move, in the turn-based form."""
        state = self._running()
        if not sequential(self._game.get_type()):
            state = self._in_turns(state)
        return str(state.information_state_string(self._seat))

    def move(self, text: str) -> str | None:
        """Return the legal move that a reply names, in the package's words, or None."""
        return parse(text, self._moves)

    def snapshot(self) -> bytes:
        """Save the package's serialisation and pending moves; the rng follows from the task."""
        state = pyspiel.serialize_game_and_state(self._game, self._running())
        head = json.dumps([self._deal, self._seat, list(self._pending.items())])
        return self._saved(f"{head}\n{state}".encode(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Continue from `snapshot`; raise InputError if it is not of this game and opponent."""
        head, _, state = self._loaded(snapshot, VERSION).decode().partition("\n")
        self._deal, self._seat, pending = json.loads(head)
        self._pending = dict(pending)
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

    def _complete(self, state: Any) -> None:
        """Apply the moves of a round, with 0 for seats without legal moves, as the package does."""
        seats = range(self._game.num_players())
        state.apply_actions([self._pending.get(seat, 0) for seat in seats])
        self._pending = {}

    def _look(self) -> None:
        """Update the seat to move, and the legal moves of all seats that act in this round."""
        state = self._running()
        self._legal = {}
        if state.is_terminal():
            self._seat = self._seat if self._assigned is None else self._assigned
            return
        seats = [state.current_player()]
        if state.is_simultaneous_node():
            seats = [seat for seat in range(self._game.num_players()) if seat not in self._pending]
        for seat in seats:
            words = {
                state.action_to_string(seat, action).strip(): action
                for action in state.legal_actions(seat)
            }
            if words:
                self._legal[seat] = words
        self._seat = next(iter(self._legal))

    def _in_turns(self, state: Any) -> Any:
        """Return a state of a game with simultaneous moves in the package's turn-based form."""
        turns = load(self._title).new_initial_state()
        moves = [(move.player, move.action) for move in state.full_history()]
        for player, action in [*moves, *self._pending.items()]:
            if turns.current_player() == player:  # else a seat without legal moves
                turns.apply_action(action)
        return turns

    @property
    def _moves(self) -> Mapping[str, int]:
        """The legal actions of the seat that acts next, by their words; empty at the end."""
        return self._legal.get(self._seat, {})

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
            acts = seat in self._legal
            return f"{who}{seen}\n{listing(self._legal[seat]) if acts else NOT_YOUR_TURN}"
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
