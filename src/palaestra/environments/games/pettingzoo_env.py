"""PettingZoo: games and a hunt for several agents, who act in turn, told in words.

Ids: `pettingzoo/NAME` with random moves in the other seats, `NAME:self` with every seat a player.
NAME is the package's (`tictactoe`, `leduc_holdem`, …) without its version; `GAMES` says which there
are. `pursuit_small` is pursuit with a smaller world, fewer agents and 50 rounds.

Source: Terry et al. 2021; card games are RLCard's (Zha et al. 2019), pursuit is of Gupta et al.
2017. Faithful: rules, legal actions, rewards (unshaped, of every seat at every step), ends. Ours:
observations are told in words; a match of rock, paper, scissors is over after the package's 15
rounds, and not cut off. Success is a positive sum of rewards at the end (where every seat is a
player, of the first one), in pursuit that all are caught.

The agent's seat is the task's number modulo the number of seats. What the seats before it earn
for it in the first round comes with its first action's reward.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import warnings
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # notices of packages, none about us
    from pettingzoo.env_registry.exceptions import FailedToImport
    from pettingzoo.env_registry.registration import make

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError, MissingPackage
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
from palaestra.environments.games.pettingzoo_words import GAMES, Game
from palaestra.environments.snapshots import opened, sealed

VERSION = version("pettingzoo")
SEEDS = 2**31


class PettingZoo(Environment):
    """A seat, or all seats, of a game."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT, Capability.ADMISSIBLE})
    version = "2"  # since then, success in self-play is the first player's

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        title, _, form = name.partition(SEPARATOR)
        self._game: Game = GAMES[title]
        self._alone = form != SELF
        self.players = self.players_of(name)
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
        self._game_itself: Any = self._env.unwrapped  # its wrappers pass attributes on, slowly
        self._task: Task | None = None
        self._deal = 0  # how often the cards were dealt again
        self._done: list[int] = []  # the actions of all seats, since the reset
        self._actor = self._game.seats[0]  # who acts next; at the end, who acted last
        self._owed = dict.fromkeys(self._game.seats, 0.0)  # rewards that no transition has told
        self._total = dict.fromkeys(self._game.seats, 0.0)
        self._seen: Any = None  # the actor's observation
        self._moves: dict[str, int] = {}

    @classmethod
    def names(cls) -> list[str]:
        return [name for title in GAMES for name in (title, f"{title}{SEPARATOR}{SELF}")]

    @classmethod
    def players_of(cls, name: str) -> tuple[str, ...]:
        title, _, form = name.partition(SEPARATOR)
        return GAMES[title].seats if form == SELF else cls.players

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        return f"{self._game.rules} Reply with one of the moves and nothing else."

    @property
    def typical_turns(self) -> int:
        return self._game.turns * len(self.players)

    def reset(self, task: Task) -> Observation:
        """Start a game; one that ends before the agent can move is dealt again.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        self._start(task, deal=0)
        self._go_on()
        while self._over():
            self._start(task, self._deal + 1)
            self._go_on()
        return Observation(self._tell())

    def step(self, action: Action) -> Transition:
        self._running()
        if self._over():
            return Transition(Observation("The game is over."), valid=False)
        word = parse(action.text, self._moves)
        if word is None:
            said = f"That is not one of the moves. {listing(self._moves)}"
            return Transition(Observation(said), valid=False)
        actor = self._actor
        self._act(self._moves[word])
        self._go_on()
        earned, self._owed = self._owed, dict.fromkeys(self._game.seats, 0.0)
        ended = self._over() and (self._game.match or any(self._game_itself.terminations.values()))
        judged = actor if self._alone else self.players[0]
        won = self._game.together or self._total[judged] > 0
        return Transition(
            Observation(self._tell()),
            reward=earned[actor],
            terminated=ended,
            truncated=self._over() and not ended,
            success=ended and won,
            rewards={} if self._alone else earned,
        )

    def close(self) -> None:
        self._env.close()
        self._task = None

    def turn_of(self) -> str:
        return self.players[0] if self._alone else self._actor

    def state_key(self) -> str:
        """The seed and everything that was done: hidden cards and coming dice belong to it."""
        state = (self.name, self._running().seed, self._deal, self._done)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def admissible(self) -> list[str]:
        self._running()
        return list(self._moves)

    def snapshot(self) -> bytes:
        """The task and the actions of all seats; they are played again."""
        saved = {
            "task": asdict(self._running()),
            "deal": self._deal,
            "done": self._done,
            "owed": self._owed,
        }
        return sealed(f"pettingzoo/{self.name}", VERSION, json.dumps(saved).encode())

    def restore(self, snapshot: bytes) -> None:
        """Go on from `snapshot`; raises InputError if it is not of this game."""
        saved = json.loads(opened(snapshot, f"pettingzoo/{self.name}", VERSION))
        task = saved["task"]
        self._start(Task(**{**task, "split": Split(task["split"])}), saved["deal"])
        for action in saved["done"]:
            self._act(action)
        self._owed = saved["owed"]
        self._look()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self, task: Task, deal: int) -> None:
        self._task, self._deal, self._done = task, deal, []
        seed = dice_for(task, deal).randrange(SEEDS) if deal else task.seed
        with contextlib.redirect_stdout(io.StringIO()):
            self._env.reset(seed=seed)
        self._owed = dict.fromkeys(self._game.seats, 0.0)
        self._total = dict.fromkeys(self._game.seats, 0.0)

    def _act(self, action: int) -> None:
        """One action of whoever is to act, and what it brings to everybody."""
        self._env.step(action)
        self._done.append(action)
        for seat, reward in self._game_itself.rewards.items():
            self._owed[seat] += float(reward)
            self._total[seat] += float(reward)

    def _go_on(self) -> None:
        """Let the other seats act at random until it is a player's turn, or the end."""
        task, game = self._running(), self._game_itself
        while self._alone and not self._over() and game.agent_selection != self._assigned:
            dice = dice_for(task, self._deal, len(self._done))
            self._act(dice.choice(self._legal(self._env.observe(game.agent_selection))))
        self._look()

    def _look(self) -> None:
        """Whose turn it is, with what in sight, and with which moves."""
        over = self._over()
        if not over:
            self._actor = self._game_itself.agent_selection
        elif self._alone:
            self._actor = self._assigned
        self._seen = self._env.observe(self._actor)
        legal = [] if over else self._legal(self._seen)
        self._moves = {self._game.words[action]: action for action in legal}

    def _legal(self, seen: Any) -> list[int]:
        if isinstance(seen, dict):
            return [action for action, legal in enumerate(seen["action_mask"]) if legal]
        return list(range(len(self._game.words)))

    @property
    def _assigned(self) -> str:
        """The agent's seat, where the others are played here."""
        seats = self._game.seats
        return seats[seat_of(self._running(), len(seats))]

    def _over(self) -> bool:
        ended, cut = self._game_itself.terminations, self._game_itself.truncations
        return all(ended[seat] or cut[seat] for seat in self._game.seats)

    def _tell(self) -> str:
        seat = self._game.seats.index(self._actor)
        seen = self._game.tell(self._seen, seat)
        if not self._over():
            return f"{seen}\n{listing(self._moves)}"
        if self._alone:
            return f"{seen}\nThe game is over. Your return: {self._total[self._actor]:g}."
        each = ", ".join(f"{player} {got:g}" for player, got in self._total.items())
        return f"{seen}\nThe game is over. Returns: {each}."

    def _running(self) -> Task:
        if self._task is None:
            raise InputError("This PettingZoo world has no game yet; call reset with a task first.")
        return self._task
