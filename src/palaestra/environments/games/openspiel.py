"""OpenSpiel: board, card, dice and matrix games, against an opponent or against oneself.

Ids: `openspiel/NAME` against random moves, `NAME:optimal`, `NAME:equilibrium`, `NAME:mcts`
against better opponents (see `opponents.py`), and `NAME:self` with every seat a player. NAME is
the package's (`tic_tac_toe`, `kuhn_poker`, …): all its games that load by their name alone and
can be played in words with chance drawn by us; `EXCLUDED` says which are not and why. Games with
simultaneous moves are played in the package's turn-based form, which hides the moves made.

Source: Lanctot et al. 2019. Faithful: rules, moves in the package's words, what a seat sees
(unchanged but for blank lines around it), returns. Ours: one line says which player one is, and
one lists the moves; dice for chance and opponents are made anew for each move from the task's
seed, so the same seed deals the same first cards whoever plays.

The agent's seat is the task's number modulo the number of seats. Success is a strictly positive
return at the end; where every seat is a player, that of the first. In a game of points, where no
return is negative (2048, solitaire), that says little: compare rewards there. Rewards are the
package's returns, as they come: in most games at the end.

The oracle (tic_tac_toe, nim, nim:optimal) searches all ways of the agent, best moves first,
against what this task's opponent will do: it knows the dice, and empty means that no way wins.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import pyspiel

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.games.moves import (
    SELF,
    SEPARATOR,
    dice_for,
    listing,
    parse,
    seat_of,
    without_parameters,
)
from palaestra.environments.games.opponents import (
    RANDOM,
    Opponent,
    forms,
    load,
    move_values,
    opponent,
)
from palaestra.environments.snapshots import opened, sealed

EXCLUDED = {
    "crossword": "its actions are structures, not a list of moves",
    "quoridor": "the package itself warns that its implementation has known issues",
}
"""Games that load, and still are not played here. Three kinds are excluded as a whole: mean field
games (they have no seats: mfg_*), games whose chance the package draws unseen (negotiation,
stones_and_gems, tarok, bridge_uncontested_bidding: a task's seed could not decide it), and games
that do not load by their name alone (they need a file, a payoff matrix or another game)."""

OBSERVED = ("battleship", "blackjack", "kriegspiel", "oshi_zumo", "solitaire")
"""Games with hidden information whose information state is a list of numbers or a long history;
the observation says the same in a picture."""

FORESEEN = ("nim", "nim:optimal", "tic_tac_toe")
"""Names with an oracle; there is none for tic_tac_toe:optimal, where no way wins."""

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
LONGEST_EPISODE = 200  # moves of one seat that are typical, at most
VERSION = version("open_spiel")


class OpenSpiel(Environment):
    """A seat, or all seats, of a game."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT, Capability.ADMISSIBLE})
    version = "2"  # since then, success in self-play is the first player's

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._title, _, self._form = name.partition(SEPARATOR)
        self._game: Any = load(self._title)
        self._kind = _kinds()[self._title]
        self.players = self.players_of(name)
        self.capabilities = self.capabilities_of(name)  # type: ignore[misc]
        self._opponent: Opponent | None = None  # made when it is needed first: it may take time
        self._informed = _sees_information_state(self._kind)
        self._task: Task | None = None
        self._deal = 0  # how often the cards were dealt again
        self._state: Any = None
        self._seat = 0  # who acts next; at the end, who acted last
        self._moves: dict[str, int] = {}  # of that seat, by their words

    @classmethod
    def names(cls) -> list[str]:
        return list(_names())

    @classmethod
    def capabilities_of(cls, name: str) -> frozenset[Capability]:
        return cls.capabilities | ({Capability.ORACLE} if name in FORESEEN else set())

    @classmethod
    def players_of(cls, name: str) -> tuple[str, ...]:
        title, _, form = name.partition(SEPARATOR)
        if form != SELF:
            return cls.players
        return tuple(f"player{seat}" for seat in range(load(title).num_players()))

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        seats = self._game.num_players()
        among = f" with {seats} players" if seats > 1 else ""
        note = NOTES.get(self._title, "")
        return (
            f"You play {self._kind.long_name}{among}. Reply with one of the moves and nothing else."
            f"{' ' if note else ''}{note}"
        )

    @property
    def typical_turns(self) -> int:
        """The longest possible game, up to 200 moves a seat."""
        longest, seats = self._game.max_game_length(), self._game.num_players()
        if self._form == SELF:
            return int(min(longest, seats * LONGEST_EPISODE))
        return int(min(-(-longest // seats), LONGEST_EPISODE))

    def reset(self, task: Task) -> Observation:
        """Start a game; one that ends before the agent can move is dealt again.

        Raises:
            InputError: the task has parameters; the environment's name says everything here.
        """
        without_parameters(task)
        self._task, self._deal = task, -1
        self._state = None
        while self._state is None or self._state.is_terminal():
            self._deal += 1
            self._state = self._game.new_initial_state()
            self._go_on(self._state)
        self._look()
        return Observation(self._tell())

    def step(self, action: Action) -> Transition:
        state = self._running()
        if state.is_terminal():
            return Transition(Observation("The game is over."), valid=False)
        word = self.move(action.text)
        if word is None:
            said = f"That is not one of the moves. {listing(self._moves)}"
            return Transition(Observation(said), valid=False)
        seat, before = self._seat, self._returns()
        state.apply_action(self._moves[word])
        self._go_on(state)
        self._look()
        won = [now - then for now, then in zip(self._returns(), before, strict=True)]
        over = bool(state.is_terminal())
        return Transition(
            Observation(self._tell()),
            reward=won[seat],
            terminated=over,
            success=over and state.returns()[0 if self._form == SELF else seat] > 0,
            rewards=dict(zip(self.players, won, strict=True)) if self._form == SELF else {},
        )

    def close(self) -> None:
        self._state = None

    def turn_of(self) -> str:
        return self.players[self._seat] if self._form == SELF else self.players[0]

    def state_key(self) -> str:
        """The seed and everything that happened: hidden cards and coming dice belong to it."""
        history = self._running().history()
        assert self._task is not None
        state = (self.name, self._task.seed, self._deal, history)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def admissible(self) -> list[str]:
        self._running()
        return list(self._moves)

    def information_state(self) -> str:
        """What the package says the seat to move knows, whatever it is shown here."""
        return str(self._running().information_state_string(self._seat))

    def move(self, text: str) -> str | None:
        """Which of the moves a reply names, in the package's words; None for none of them."""
        return parse(text, self._moves)

    def snapshot(self) -> bytes:
        """The package's own serialisation; the dice follow from the task."""
        state = self._running()
        assert self._task is not None
        saved = {
            "task": asdict(self._task),
            "deal": self._deal,
            "seat": self._seat,
            "state": pyspiel.serialize_game_and_state(self._game, state),
        }
        return sealed(f"openspiel/{self.name}", VERSION, json.dumps(saved).encode())

    def restore(self, snapshot: bytes) -> None:
        """Go on from `snapshot`; raises InputError if it is not of this game and opponent."""
        saved = json.loads(opened(snapshot, f"openspiel/{self.name}", VERSION))
        task = saved["task"]
        self._task = Task(**{**task, "split": Split(task["split"])})
        self._deal, self._seat = saved["deal"], saved["seat"]
        _, self._state = pyspiel.deserialize_game_and_state(saved["state"])
        self._look()

    def oracle(self) -> list[Action]:
        """A way to win, the best moves first at each turn; empty where there is none."""
        if Capability.ORACLE not in self.capabilities:
            self._undeclared(Capability.ORACLE)
        tried: set[tuple[int, str]] = set()
        values = move_values(self._title)

        def way(state: Any) -> list[str] | None:
            if state.is_terminal():
                return [] if state.returns()[self._seat] > 0 else None
            here = (state.move_number(), str(state))
            if here in tried:
                return None
            tried.add(here)
            for action, _ in sorted(values(state).items(), key=lambda move: -move[1]):
                after = state.child(action)
                self._go_on(after)
                rest = way(after)
                if rest is not None:
                    return [state.action_to_string(action).strip(), *rest]
            return None

        state = self._running()
        return [] if state.is_terminal() else [Action(word) for word in way(state) or ()]

    # ── details ──────────────────────────────────────────────────────────────

    def _go_on(self, state: Any) -> None:
        """Let chance and the other seats act until it is a player's turn, or the end."""
        assigned = self._assigned
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes, chances = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(self._dice(state).choices(outcomes, chances)[0])
            elif assigned is None or state.current_player() == assigned:
                break
            else:
                if self._opponent is None:
                    self._opponent = opponent(self._form, self._title)
                state.apply_action(self._opponent(state, self._dice(state)))

    def _look(self) -> None:
        """Whose turn it is, and with which moves."""
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
        """The agent's seat; none where all seats are players."""
        if self._form == SELF:
            return None
        assert self._task is not None
        return seat_of(self._task, self._game.num_players())

    def _dice(self, state: Any) -> random.Random:
        assert self._task is not None
        return dice_for(self._task, self._deal, state.move_number())

    def _returns(self) -> list[float]:
        """What every seat has received so far; nothing before the end, in most games."""
        state = self._running()
        if state.is_terminal() or self._kind.reward_model == pyspiel.GameType.RewardModel.REWARDS:
            return list(map(float, state.returns()))
        return [0.0] * self._game.num_players()

    def _tell(self) -> str:
        state = self._running()
        alone = self._game.num_players() == 1
        seen = self._view(self._seat)
        if not state.is_terminal():
            who = "" if alone else f"You are player {self._seat}.\n"
            return f"{who}{seen}\n{listing(self._moves)}"
        returns = state.returns()
        if self._form == SELF:
            each = ", ".join(f"player {seat} {got:g}" for seat, got in enumerate(returns))
            return f"{seen}\nThe game is over. Returns: {each}."
        return f"{seen}\nThe game is over. Your return: {returns[self._seat]:g}."

    def _view(self, seat: int) -> str:
        """What the package shows to that seat, and nobody else's cards."""
        state = self._running()
        if self._informed:
            seen = state.information_state_string(seat)
        else:
            seen = state.observation_string(seat)
        return str(seen).strip("\n")

    def _running(self) -> Any:
        if self._state is None:
            raise InputError("This OpenSpiel world has no game yet; call reset with a task first.")
        return self._state


def _sees_information_state(kind: Any) -> bool:
    """Whether a seat is shown its information state, or else its observation."""
    if not kind.provides_observation_string:
        return True
    hidden = kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION
    shown = hidden and kind.short_name not in OBSERVED
    return bool(shown and kind.provides_information_state_string)


@lru_cache(maxsize=1)
def _kinds() -> dict[str, Any]:
    """The games that are played here, by name, as the package describes them."""
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
