"""PettingZoo: multi-agent games and pursuit, rendered as text.

Ids: `pettingzoo/NAME` with random moves in the other seats, `NAME:self` with every seat a player.
NAME is the package's (`tictactoe`, `leduc_holdem`, …) without its version; `GAMES` lists them.
`pursuit_small` is pursuit with a smaller grid, fewer agents and 50 rounds.

Source: Terry et al. 2021; card games are RLCard's (Zha et al. 2019), pursuit is from Gupta et al.
2017. Faithful: rules, legal actions, rewards (unshaped, of every seat at every step), ends. Ours:
observations are rendered as text; a match of rock, paper, scissors terminates after the package's
15 rounds instead of being truncated. Success is a positive sum of rewards at the end (in self-play,
the first player's); in pursuit it is the capture of all evaders.

In `rps:self` both seats act at the same time. Pursuers act one after another, as in the package:
each sees where those before it have gone.

The agent's seat is the task's number modulo the number of seats. A reward that it gets from earlier
seats' moves in the first round is added to the reward of its first action.
"""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the packages' notices do not concern us
    from pettingzoo.env_registry.exceptions import FailedToImport
    from pettingzoo.env_registry.registration import make

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import MissingPackage
from palaestra.core.rare_capabilities import Multiplayer
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.pettingzoo.words import GAMES, Game
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

VERSION = version("pettingzoo")
SEEDS = 2**31


class PettingZoo(
    Adapter,
    Multiplayer,
    id="pettingzoo",
    version="3",  # 2: success in self-play is the first player's; 3: both act at once in rps
    capabilities={"state_key", "snapshot", "admissible"},
):
    """One seat, or all seats, of a game."""

    OVER = moves.OVER

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        title, _, form = name.partition(SEPARATOR)
        self._game: Game = GAMES[title]
        self._alone = form != SELF
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self._env: Any = make("aec", self._game.id, **self._game.arguments)
            except FailedToImport as error:
                missing = getattr(error.__cause__, "name", None) or "one of its parts"
                raise MissingPackage(
                    f"The environment 'pettingzoo/{name}' needs the Python package '{missing}', "
                    "which is not installed; install it with: pip install 'palaestra[pettingzoo]'."
                ) from error
        self._raw: Any = self._env.unwrapped  # attributes are slow through the wrappers
        self._deal = 0  # number of deals of this task that were discarded
        self._done: list[int] = []  # the actions of all seats since the reset
        self._actor = self._game.seats[0]  # acts next; at the end, acted last
        self._owed = dict.fromkeys(self._game.seats, 0.0)  # rewards not yet in a transition
        self._total = dict.fromkeys(self._game.seats, 0.0)
        self._seen: dict[str, Any] = {}  # observations of the seats that act, or acted last
        self._legal: dict[str, dict[str, int]] = {}
        """Of each seat that acts in this round and has not moved: its actions by their words."""

    @classmethod
    def names(cls) -> list[str]:
        return [name for title in GAMES for name in (title, f"{title}{SEPARATOR}{SELF}")]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, (title, _, form) = super().spec_of(name), name.partition(SEPARATOR)
        game = GAMES[title]
        if form != SELF:
            return replace(spec, typical_turns=game.turns)
        turns = game.turns * len(game.seats)
        return replace(spec, players=game.seats, stakes=game.stakes, typical_turns=turns)

    @property
    def instructions(self) -> str:
        return f"{self._game.rules} Reply with one of the moves and nothing else."

    def _begin(self, task: Task) -> Observation:
        """Start a game; one that ends before the agent can move is dealt again.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task, moves.REMEDY)
        self._start(task, deal=0)
        self._advance()
        while self._ended():
            self._start(task, self._deal + 1)
            self._advance()
        return Observation(self._render(self._actor))

    def _act(self, action: Action) -> Transition:
        word = parse(action.text, self._moves)
        if word is None:
            return refused(f"That is not one of the moves. {listing(self._moves)}")
        actor = self._actor
        self._play(self._moves[word])
        self._advance()
        earned, self._owed = self._owed, dict.fromkeys(self._game.seats, 0.0)
        ended = self._ended() and (self._game.match or any(self._raw.terminations.values()))
        judged = actor if self._alone else self.spec.players[0]
        won = self._game.together or self._total[judged] > 0
        return Transition(
            Observation(self._render(self._actor)),
            reward=earned[actor],
            terminated=ended,
            truncated=self._ended() and not ended,
            success=ended and won,
            rewards={} if self._alone else earned,
        )

    def close(self) -> None:
        self._env.close()
        self._task = None

    def acting(self) -> tuple[str, ...]:
        self._current()
        if self._alone:
            return self.spec.players if self._legal else ()
        return tuple(self._legal)

    def observe(self, player: str) -> Observation:
        return Observation(self._render(self._actor if self._alone else player))

    def state_key(self) -> str:
        """Hash the seed and all actions; hidden cards and future chance follow from them."""
        return hashed(self.spec.name, self._current().seed, self._deal, self._done)

    def admissible(self) -> list[str]:
        self._current()
        return list(self._moves)

    def snapshot(self) -> bytes:
        """Save the task and the actions of all seats, which `restore` replays."""
        return self._saved(json.dumps([self._deal, self._done, self._owed]).encode(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Continue from `snapshot`; raise InputError if it is not of this game."""
        deal, done, owed = json.loads(self._loaded(snapshot, VERSION))
        self._start(self._current(), deal)
        for action in done:
            self._play(action)
        self._owed = owed
        self._look()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self, task: Task, deal: int) -> None:
        self._deal, self._done = deal, []
        seed = rng_for(task, deal).randrange(SEEDS) if deal else task.seed
        with contextlib.redirect_stdout(io.StringIO()):
            self._env.reset(seed=seed)
        self._owed = dict.fromkeys(self._game.seats, 0.0)
        self._total = dict.fromkeys(self._game.seats, 0.0)

    def _play(self, action: int) -> None:
        """Take an action for the seat to move, and add up the rewards of all seats."""
        self._env.step(action)
        self._done.append(action)
        for seat, reward in self._raw.rewards.items():
            self._owed[seat] += float(reward)
            self._total[seat] += float(reward)

    def _advance(self) -> None:
        """Play random moves for the other seats until a player's turn or the end."""
        task, raw = self._current(), self._raw
        while self._alone and not self._ended() and raw.agent_selection != self._assigned:
            rng = rng_for(task, self._deal, len(self._done))
            self._play(rng.choice(self._actions(self._env.observe(raw.agent_selection))))
        self._look()

    def _look(self) -> None:
        """Update the seat to move, and the legal moves of all seats that act in this round."""
        over, seats = self._ended(), self._game.seats
        if not over:
            self._actor = self._raw.agent_selection
        elif self._alone:
            self._actor = self._assigned
        at_once = self._game.simultaneous and not self._alone and not over
        acting = seats[seats.index(self._actor) :] if at_once else (self._actor,)
        self._seen = {seat: self._env.observe(seat) for seat in acting}
        self._legal = {}
        for seat, seen in () if over else self._seen.items():
            self._legal[seat] = {self._game.words[action]: action for action in self._actions(seen)}

    def _actions(self, seen: Any) -> list[int]:
        """Return the legal actions of a seat that acts, from its observation."""
        if isinstance(seen, dict):
            return [action for action, legal in enumerate(seen["action_mask"]) if legal]
        return list(range(len(self._game.words)))

    @property
    def _moves(self) -> Mapping[str, int]:
        """The legal actions of the seat to move, by their words; empty at the end."""
        return self._legal.get(self._actor, {})

    @property
    def _assigned(self) -> str:
        """The agent's seat, if the other seats play random moves."""
        seats = self._game.seats
        return seats[seat_of(self._current(), len(seats))]

    def _ended(self) -> bool:
        ended, cut = self._raw.terminations, self._raw.truncations
        return all(ended[seat] or cut[seat] for seat in self._game.seats)

    def _render(self, player: str) -> str:
        seen = self._seen[player] if player in self._seen else self._env.observe(player)
        seen = self._game.render(seen, self._game.seats.index(player))
        if not self._ended():
            acts = player in self._legal
            return f"{seen}\n{listing(self._legal[player]) if acts else NOT_YOUR_TURN}"
        if self._alone:
            return f"{seen}\nThe game is over. Your return: {self._total[player]:g}."
        each = ", ".join(f"{player} {value:g}" for player, value in self._total.items())
        return f"{seen}\nThe game is over. Returns: {each}."
