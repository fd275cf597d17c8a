"""TextArena: puzzles, board and card games, bargaining and talk, in the package's own words.

Ids: `textarena/NAME` for one player, or against players that make random legal moves;
`NAME:self` with every seat a player. NAME is the package's without `-v0`: `TicTacToe`,
`Sokoban-medium`. Games with words that cannot be listed (bargaining, talk) have only `NAME:self`.

Source: Guertler et al. 2025. Faithful: rules, texts (each message as `[GAME] …`, as the package's
default wrapper writes it), rewards, ends. Ours: a player hears what is new since its last turn, not
everything again and not its own words; words that the package calls invalid, or that break
it, are answered with its reason and change nothing (in the package, the second one in a row
loses); the order of turns in the package may begin with any seat. Success is the whole reward (1)
for one player, and a positive one among several; where every seat is a player, the first one's.

The package draws from Python's global dice; each world here has its own. Not here, and why:
`LEFT_OUT`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from types import MethodType
from typing import Any

with contextlib.redirect_stdout(io.StringIO()):
    import textarena
    from textarena.core import GAME_ID, ActionWrapper, ObservationType
    from textarena.envs.registration import ENV_REGISTRY, make

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.games.moves import (
    SELF,
    SEPARATOR,
    dice_for,
    seat_of,
    without_parameters,
)
from palaestra.environments.games.textarena_moves import (
    ALONE,
    CLOSED,
    DRAWN,
    MOVES,
    OUTCOMES,
    SEATS,
    TALK,
    Settings,
)
from palaestra.environments.snapshots import opened, sealed

LEFT_OUT = {
    "needs NLTK's list of words, which the package downloads": (
        "Codenames, DontSayIt, Hangman, LetterAuction, SpellingBee, WordChains, WordLadder, "
        "WordSearch, Wordle"
    ),
    "asks a language model on the network": "Debate, GuessWho, ScenarioPlanning, TwentyQuestions",
    "is no valid Python 3.11": (
        "Checkers, Chess, IteratedStagHunt, Klondike, ReverseTicTacToe, UltimateTexasHoldem"
    ),
    "lacks a file or a module": "BabyAiText, ScorableGames, UsedCar, UsedCarNegotiation",
    "breaks when it is won": "FifteenPuzzle, Tak",
    "breaks on every message": "CharacterConclave",
    "can come to a position without a legal move": "QuantumTicTacToe, UltimateTicTacToe",
    "depends on Python's hash seed": "Crosswords",
    "has words that are not described in `textarena_moves.py`": (
        "LogicPuzzle, SantoriniBaseFixed, SettlersOfCatan, SpiteAndMalice"
    ),
}
"""Why not, and which of the package's games."""

TRIALS = 400  # random words of which one should be legal, where they cannot be listed
TRIED = 128  # words of a game of which the legal ones can be told by trying all
TURNS = 40  # of a game, where its settings name no limit
SEEDS = 2**31


class TextArena(Environment):
    """A seat, or all seats, of a game."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT})
    version = "2"  # since then, success in self-play is the first player's

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        title, _, form = name.partition(SEPARATOR)
        spec = ENV_REGISTRY[_ids()[title]]
        self._base = _base(title)
        self._settings: Settings = spec.kwargs
        self._own = form == SELF  # every seat is a player
        self.players = self.players_of(name)
        self.capabilities = self.capabilities_of(name)  # type: ignore[misc]
        self.free_text = self._base in TALK  # type: ignore[misc]
        self._raw = f"{spec.id}-raw"  # without the package's wrappers
        wrappers = [w for w in spec.default_wrappers or () if issubclass(w, ActionWrapper)]
        self._formats = [wrapper(None).action for wrapper in wrappers]
        self._env: Any = None
        self._chance: Any = None  # where the package's dice stand
        self._task: Task | None = None
        self._deal = 0  # how often the game was begun again
        self._said: list[str] = []  # by all seats, since the reset
        self._finished = False

    @classmethod
    def names(cls) -> list[str]:
        found = []
        for title in _ids():
            base = _base(title)
            found += [title] * (base in MOVES or base in ALONE)
            found += [f"{title}{SEPARATOR}{SELF}"] * (base not in ALONE)
        return found

    @classmethod
    def capabilities_of(cls, name: str) -> frozenset[Capability]:
        title = name.partition(SEPARATOR)[0]
        moves = MOVES.get(_base(title))
        listed = moves and len(moves(ENV_REGISTRY[_ids()[title]].kwargs)) <= TRIED
        return cls.capabilities | ({Capability.ADMISSIBLE} if listed else set())

    @classmethod
    def players_of(cls, name: str) -> tuple[str, ...]:
        title, _, form = name.partition(SEPARATOR)
        if form != SELF:
            return cls.players
        return tuple(f"player{seat}" for seat in range(_seats(_base(title))))

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        return "You play a game. Reply with one move, in the format that the game asks for."

    @property
    def typical_turns(self) -> int:
        most = int(self._settings.get("max_turns") or TURNS)
        return most if self._own else -(-most // _seats(self._base))

    def reset(self, task: Task) -> Observation:
        """Start a game; one that ends before the agent can move is begun again.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        self._start(task, deal=0)
        self._go_on()
        while self._over():
            self._start(task, self._deal + 1)
            self._go_on()
        return Observation(self._hear())

    def step(self, action: Action) -> Transition:
        self._running()
        if self._over():
            return Transition(Observation("The game is over."), valid=False)
        seat = self._turn
        refusal = self._say(self._formatted(action.text))
        if refusal is not None:
            return Transition(Observation(refusal), valid=False)
        self._go_on()
        rewards = self._rewards()
        judged = 0 if self._own else seat
        return Transition(
            Observation(self._hear(seat)),
            reward=rewards[seat],
            terminated=self._over(),
            success=self._over() and rewards[judged] >= (1 if self._base in ALONE else 1e-9),
            rewards=dict(zip(self.players, rewards, strict=True)) if self._own else {},
        )

    def close(self) -> None:
        self._task = self._env = None

    def turn_of(self) -> str:
        return self.players[self._turn] if self._own else self.players[0]

    def state_key(self) -> str:
        """The seed and everything that was said: what is hidden and coming dice belong to it."""
        state = (self.name, self._running().seed, self._deal, self._said)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def admissible(self) -> list[str]:
        """The words of the game's format that the package takes now: each one is tried."""
        if Capability.ADMISSIBLE not in self.capabilities:
            self._undeclared(Capability.ADMISSIBLE)
        self._running()
        return [] if self._over() else [word for word in self._words() if self._takes(word)]

    def sample_action(self, dice: random.Random) -> Action:
        """Words that the package takes; any of the kind where it takes none."""
        if self._over():
            return Action("")
        return Action(self._drawn(dice) or next(self._kind(dice)))

    def snapshot(self) -> bytes:
        """The task and all that was said; it is said again."""
        saved = {"task": asdict(self._running()), "deal": self._deal, "said": self._said}
        return sealed(self._id, textarena.__version__, json.dumps(saved).encode())

    def restore(self, snapshot: bytes) -> None:
        """Go on from `snapshot`; raises InputError if it is not of this game."""
        saved = json.loads(opened(snapshot, self._id, textarena.__version__))
        task = saved["task"]
        self._start(Task(**{**task, "split": Split(task["split"])}), saved["deal"])
        for words in saved["said"]:
            self._env.get_observation()
            self._say(words)
        if self._over():
            return
        self._env.get_observation()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self, task: Task, deal: int) -> None:
        self._task, self._deal, self._said, self._finished = task, deal, [], False
        dice = dice_for(task, deal)
        seed = dice.randrange(SEEDS) if deal else task.seed
        with self._dice(dice.getstate()):  # a new one: some cannot be reset (Stratego)
            self._env = make(self._raw)
            self._env.reset(num_players=_seats(self._base), seed=seed)
        self._env.state.set_invalid_move = MethodType(_refuse, self._env.state)

    def _say(self, words: str) -> str | None:
        """Let the player whose turn it is say that; None, or why it was refused."""
        if self._base in CLOSED and words.casefold() not in map(str.casefold, self._words()):
            return f"That is not understood. Reply with one of: {', '.join(self._words())}."
        after = self._copied()
        after.state.refusal = None
        before = self._chance
        try:
            with self._dice():
                done, _ = after.step(words)
        except Exception:  # the package's own mistakes about strange words
            after.state.refusal = "That is not understood."
        refusal: str | None = after.state.refusal
        counts = refusal is not None and self._base in OUTCOMES and OUTCOMES[self._base] in refusal
        if refusal is not None and not counts:
            self._chance = before
            return refusal
        self._env, self._finished = after, bool(done or after.state.done)
        self._said.append(words)
        return None

    def _copied(self) -> Any:
        """The package's world again; what was said so far never changes and is not copied."""
        state = self._env.state
        lists = [state.logs, *state.observations.values()]
        known: dict[int, Any] = {id(said): list(said) for said in lists}
        if sets := getattr(self._env, "all_sets", None):  # of the game Set: a large constant
            known[id(sets)] = sets
        return copy.deepcopy(self._env, known)

    def _takes(self, words: str) -> bool:
        """Whether the package would take these words; nothing changes."""
        saved = self._env, self._chance, self._finished
        taken = self._say(words) is None
        if taken:
            self._said.pop()
        self._env, self._chance, self._finished = saved
        return taken

    def _go_on(self) -> None:
        """Let the other seats move at random until it is a player's turn, or the end."""
        task = self._running()
        while not self._own and not self._over() and self._turn != self._assigned:
            self._env.get_observation()
            words = self._drawn(dice_for(task, self._deal, len(self._said)))
            if words is None:
                raise EnvironmentFault("step", f"no legal move was found for seat {self._turn}")
            self._say(words)

    def _drawn(self, dice: random.Random) -> str | None:
        """Random words that the package takes now, if some are found."""
        return next((word for word in self._kind(dice) if self._takes(word)), None)

    def _kind(self, dice: random.Random) -> Iterator[str]:
        """Random words of the kind that the game wants, each one once if they can be listed."""
        if self._base in MOVES:
            words = self._words()
            yield from dice.sample(words, len(words))
            return
        for _ in range(TRIALS):
            if self._base in TALK:
                yield dice.choice(TALK[self._base])
            else:
                yield DRAWN[self._base](self._settings, dice)

    def _words(self) -> list[str]:
        return MOVES[self._base](self._settings)

    def _formatted(self, text: str) -> str:
        """As the package's own wrappers format what a model says."""
        words = text.strip() or " "
        for format in self._formats:
            words = format(words)
        return words

    def _hear(self, actor: int | None = None) -> str:
        """What is new to the player whose turn it is; at the end, to the one who has acted."""
        state = self._env.state
        if not self._over():
            seat, messages = self._env.get_observation()
        else:
            seat = actor
            messages = state.observations.get(seat, [])
        told = [
            f"[{'GAME' if sender == GAME_ID else state.role_mapping.get(sender, sender)}] {text}"
            for sender, text, kind in messages
            if not (kind == ObservationType.PLAYER_ACTION and sender == seat)
        ]
        if self._over():
            reason = state.game_info.get(seat, {}).get("reason") or ""
            told.append(f"The game is over. {reason} Your reward: {self._rewards()[seat]:g}.")
        return "\n".join(told).strip() or "It is your turn."

    def _rewards(self) -> list[float]:
        """Of each seat; all come at the end."""
        given = (self._env.state.rewards or {}) if self._over() else {}
        return [float(given.get(seat, 0.0)) for seat in range(_seats(self._base))]

    def _over(self) -> bool:
        return self._finished

    @property
    def _turn(self) -> int:
        return int(self._env.state.current_player_id)

    @property
    def _assigned(self) -> int:
        """The agent's seat, where the others are played here."""
        return seat_of(self._running(), _seats(self._base))

    @contextlib.contextmanager
    def _dice(self, start: Any = None) -> Iterator[None]:
        """Python's global dice are this world's, for so long; and what is printed is dropped."""
        outside = random.getstate()
        random.setstate(self._chance if start is None else start)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            self._chance = random.getstate()
            random.setstate(outside)

    @property
    def _id(self) -> str:
        return f"textarena/{self.name}"

    def _running(self) -> Task:
        if self._task is None:
            raise InputError("This TextArena world has no game yet; call reset with a task first.")
        return self._task


def _refuse(state: Any, *reasons: Any, **more: Any) -> Any:
    """Note why the package calls a move invalid, besides what it does then."""
    texts = [reason for reason in (*reasons, more.get("reason")) if isinstance(reason, str)]
    state.refusal = texts[0] if texts else "That is not a legal move."
    return type(state).set_invalid_move(state, *reasons, **more)


def _seats(base: str) -> int:
    return 1 if base in ALONE else SEATS.get(base, 2)


def _base(title: str) -> str:
    """A game's name without its variant."""
    return title.partition("-")[0]


@lru_cache(maxsize=1)
def _ids() -> dict[str, str]:
    """Name within the family -> the package's id."""
    found = {}
    for id in ENV_REGISTRY:
        parts = re.fullmatch(r"([^-]+)-v0((?:-.+)?)", id)
        if parts is None or id.endswith(("-raw", "-train")):
            continue
        base = parts.group(1)
        if base in MOVES or base in DRAWN or base in TALK:
            found[base + parts.group(2)] = id
    return found
