"""TextArena: puzzles, board and card games, bargaining and talk, in the package's own words.

Ids: `textarena/NAME` for one player, or against players that make random legal moves;
`NAME:self` with every seat a player. NAME is the package's without `-v0`: `TicTacToe`,
`Sokoban-medium`. Games whose moves cannot be listed (bargaining, talk) have only `NAME:self`.

Source: Guertler et al. 2025. Faithful: rules, texts (each message as `[GAME] …`, as the package's
default wrapper writes it), rewards, ends. Ours: a player sees the messages since its last turn,
without its own, instead of the whole history. A move that the package calls invalid, or that
crashes it, is answered with the reason and changes nothing (in the package, the second one in a row
loses). Any seat may have the first turn, as in the package. Success is the full reward (1) in games
for one player, a positive reward in others; in self-play, the first player's.

The package uses Python's global rng; here each environment has its own. `EXCLUDED` lists the games
that are not available, with reasons.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from types import MethodType
from typing import Any

with contextlib.redirect_stdout(io.StringIO()):
    import textarena
    from textarena.core import GAME_ID, ActionWrapper, ObservationType
    from textarena.envs.registration import ENV_REGISTRY, make

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import EnvironmentFault
from palaestra.core.rare_capabilities import Multiplayer, Sampling
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, hashed, refused, without_parameters
from palaestra.environments.families.textarena.moves import (
    ALONE,
    ANSWERS,
    CLOSED,
    MOVES,
    OUTCOMES,
    SAMPLED,
    SEATS,
    TALK,
    Settings,
)
from palaestra.environments.shared import seats as shared_seats
from palaestra.environments.shared.seats import (
    NOT_YOUR_TURN,
    SELF,
    SEPARATOR,
    rng_for,
    seat_of,
)

EXCLUDED = {
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
    "has moves that are not described in `moves.py`": (
        "LogicPuzzle, SantoriniBaseFixed, SettlersOfCatan, SpiteAndMalice"
    ),
}
"""Reasons for exclusion -> names of the package's games."""

TRIALS = 400  # random moves to try until one is legal, if moves cannot be listed
TRIED = 128  # largest number of moves for which `admissible` tries all
TURNS = 40  # of a game without a limit in its settings
SEEDS = 2**31


class TextArena(
    Adapter,
    Multiplayer,
    Sampling,
    id="textarena",
    version="2",  # since version 2, success in self-play is the first player's
    capabilities={"state_key", "snapshot"},
):
    """One seat, or all seats, of a game."""

    OVER = shared_seats.OVER

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        title, _, form = name.partition(SEPARATOR)
        spec = ENV_REGISTRY[_ids()[title]]
        self._base = _base(title)
        self._settings: Settings = spec.kwargs
        self._self_play = form == SELF
        self._raw = f"{spec.id}-raw"  # without the package's wrappers
        wrappers = [w for w in spec.default_wrappers or () if issubclass(w, ActionWrapper)]
        self._formats = [wrapper(None).action for wrapper in wrappers]
        self._env: Any = None
        self._rng_state: Any = None  # of Python's global rng, as the package left it
        self._deal = 0  # number of deals of this task that were discarded
        self._moves: list[str] = []  # of all seats, since the reset
        self._received: Any = ()  # the new messages to the seat to move
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
    def spec_of(cls, name: str = "") -> Spec:
        spec, (title, _, form) = super().spec_of(name), name.partition(SEPARATOR)
        base, settings = _base(title), ENV_REGISTRY[_ids()[title]].kwargs
        moves = MOVES.get(base)
        listed = moves and len(moves(settings)) <= TRIED
        self_play, most = form == SELF, int(settings.get("max_turns") or TURNS)
        seats = _seats(base)
        more = {Capability.ADMISSIBLE} if listed else set()
        more |= {Capability.ANSWER} if base in ANSWERS else set()
        return replace(
            spec,
            capabilities=spec.capabilities | more,
            players=tuple(f"player{seat}" for seat in range(seats)) if self_play else spec.players,
            free_text=base in TALK,
            typical_turns=most if self_play else -(-most // seats),
        )

    @property
    def instructions(self) -> str:
        return "You play a game. Reply with one move, in the format that the game asks for."

    def _begin(self, task: Task) -> Observation:
        """Start a game; one that ends before the agent can move is dealt again.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task, shared_seats.REMEDY)
        self._start(task, deal=0)
        self._advance()
        while self._finished:
            self._start(task, self._deal + 1)
            self._advance()
        self._receive()
        return Observation(self._render(self._turn))

    def _act(self, action: Action) -> Transition:
        seat = self._turn
        problem = self._move(self._formatted(action.text))
        if problem is not None:
            return refused(problem)
        self._advance()
        self._receive()
        rewards = self._rewards()
        judged = 0 if self._self_play else seat
        return Transition(
            Observation(self._render(seat if self._finished else self._turn)),
            reward=rewards[seat],
            terminated=self._finished,
            success=self._finished and rewards[judged] >= (1 if self._base in ALONE else 1e-9),
            rewards=dict(zip(self.spec.players, rewards, strict=True)) if self._self_play else {},
        )

    def close(self) -> None:
        self._task = self._env = None

    def acting(self) -> tuple[str, ...]:
        if self._finished:
            return ()
        return (self.spec.players[self._turn if self._self_play else 0],)

    def observe(self, player: str) -> Observation:
        """Return the messages to a player since its last turn."""
        self._current()
        seat = self.spec.players.index(player) if self._self_play else self._assigned
        return Observation(self._render(seat))

    def state_key(self) -> str:
        """Hash the seed and all moves; hidden information and future chance follow from them."""
        return hashed(self.spec.name, self._current().seed, self._deal, self._moves)

    def admissible(self) -> list[str]:
        """Return the listed moves that the package accepts now; each one is tried."""
        if Capability.ADMISSIBLE not in self.spec.capabilities:
            self._undeclared(Capability.ADMISSIBLE)
        self._current()
        return [] if self._finished else [move for move in self._listed() if self._accepts(move)]

    def answer(self) -> Action:
        """Return the move that names the secret, in games that have one."""
        if self._base not in ANSWERS:
            self._undeclared(Capability.ANSWER)
        self._current()
        return Action(ANSWERS[self._base](self._env))

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a move that the package accepts, or any move if none is found."""
        if self._finished:
            return Action("")
        return Action(self._legal(rng) or next(self._candidates(rng)))

    def snapshot(self) -> bytes:
        """Save the task and all moves, which `restore` replays."""
        return self._saved(json.dumps([self._deal, self._moves]).encode(), textarena.__version__)

    def restore(self, snapshot: bytes) -> None:
        """Continue from `snapshot`; raise InputError if it is not of this game."""
        deal, moves = json.loads(self._loaded(snapshot, textarena.__version__))
        self._start(self._current(), deal)
        for move in moves:
            self._env.get_observation()
            self._move(move)
        self._receive()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self, task: Task, deal: int) -> None:
        self._deal, self._moves, self._finished = deal, [], False
        rng = rng_for(task, deal)
        seed = rng.randrange(SEEDS) if deal else task.seed
        with self._global_rng(rng.getstate()):  # a new game: some cannot be reset (Stratego)
            self._env = make(self._raw)
            self._env.reset(num_players=_seats(self._base), seed=seed)
        self._env.state.set_invalid_move = MethodType(_refuse, self._env.state)

    def _move(self, move: str) -> str | None:
        """Make a move for the player to move; return None, or the reason for a refusal."""
        if self._base in CLOSED and move.casefold() not in map(str.casefold, self._listed()):
            return f"That is not understood. Reply with one of: {', '.join(self._listed())}."
        after = self._copied()
        after.state.refusal = None
        before = self._rng_state
        try:
            with self._global_rng():
                done, _ = after.step(move)
        except Exception:  # the package crashes on some malformed moves
            after.state.refusal = "That is not understood."
        refusal: str | None = after.state.refusal
        counts = refusal is not None and self._base in OUTCOMES and OUTCOMES[self._base] in refusal
        if refusal is not None and not counts:
            self._rng_state = before
            return refusal
        self._env, self._finished = after, bool(done or after.state.done)
        self._moves.append(move)
        return None

    def _copied(self) -> Any:
        """Copy the package's game; past messages never change and are shared."""
        state = self._env.state
        lists = [state.logs, *state.observations.values()]
        known: dict[int, Any] = {id(messages): list(messages) for messages in lists}
        if sets := getattr(self._env, "all_sets", None):  # of the game Set: a large constant
            known[id(sets)] = sets
        return copy.deepcopy(self._env, known)

    def _accepts(self, move: str) -> bool:
        """Return whether the package would accept this move, without making it."""
        saved = self._env, self._rng_state, self._finished
        accepted = self._move(move) is None
        if accepted:
            self._moves.pop()
        self._env, self._rng_state, self._finished = saved
        return accepted

    def _advance(self) -> None:
        """Play random moves for the other seats until a player's turn or the end."""
        task = self._current()
        while not self._self_play and not self._finished and self._turn != self._assigned:
            self._env.get_observation()
            move = self._legal(rng_for(task, self._deal, len(self._moves)))
            if move is None:
                raise EnvironmentFault("step", f"no legal move was found for seat {self._turn}")
            self._move(move)

    def _legal(self, rng: random.Random) -> str | None:
        """Sample a move that the package accepts now, or None if none is found."""
        return next((move for move in self._candidates(rng) if self._accepts(move)), None)

    def _candidates(self, rng: random.Random) -> Iterator[str]:
        """Sample moves in the game's format; listed moves come once each, in random order."""
        if self._base in MOVES:
            listed = self._listed()
            yield from rng.sample(listed, len(listed))
            return
        for _ in range(TRIALS):
            if self._base in TALK:
                yield rng.choice(TALK[self._base])
            else:
                yield SAMPLED[self._base](self._settings, rng)

    def _listed(self) -> list[str]:
        return MOVES[self._base](self._settings)

    def _formatted(self, text: str) -> str:
        """Format a reply as the package's own wrappers do."""
        move = text.strip() or " "
        for format in self._formats:
            move = format(move)
        return move

    def _receive(self) -> None:
        """Take the new messages to the seat to move, which the package gives out only once."""
        self._received = () if self._finished else self._env.get_observation()[1]

    def _render(self, seat: int) -> str:
        """Render the messages to a seat since its last turn; at the end also the result."""
        state = self._env.state
        acts = not self._finished and seat == self._turn
        messages = self._received if acts else state.observations.get(seat, [])
        lines = [
            f"[{'GAME' if sender == GAME_ID else state.role_mapping.get(sender, sender)}] {text}"
            for sender, text, kind in messages
            if not (kind == ObservationType.PLAYER_ACTION and sender == seat)
        ]
        if self._finished:
            reason = state.game_info.get(seat, {}).get("reason") or ""
            lines.append(f"The game is over. {reason} Your reward: {self._rewards()[seat]:g}.")
        return "\n".join(lines).strip() or ("It is your turn." if acts else NOT_YOUR_TURN)

    def _rewards(self) -> list[float]:
        """Return each seat's reward, which is 0 before the end."""
        given = (self._env.state.rewards or {}) if self._finished else {}
        return [float(given.get(seat, 0.0)) for seat in range(_seats(self._base))]

    @property
    def _turn(self) -> int:
        return int(self._env.state.current_player_id)

    @property
    def _assigned(self) -> int:
        """The agent's seat, if the other seats play random moves."""
        return seat_of(self._current(), _seats(self._base))

    @contextlib.contextmanager
    def _global_rng(self, start: Any = None) -> Iterator[None]:
        """Set Python's global rng to this environment's state meanwhile, and drop printed text."""
        outside = random.getstate()
        random.setstate(self._rng_state if start is None else start)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            self._rng_state = random.getstate()
            random.setstate(outside)


def _refuse(state: Any, *reasons: Any, **more: Any) -> Any:
    """Record the package's reason for an invalid move, then do what the package does."""
    texts = [reason for reason in (*reasons, more.get("reason")) if isinstance(reason, str)]
    state.refusal = texts[0] if texts else "That is not a legal move."
    return type(state).set_invalid_move(state, *reasons, **more)


def _seats(base: str) -> int:
    return 1 if base in ALONE else SEATS.get(base, 2)


def _base(title: str) -> str:
    """Return a game's name without its variant."""
    return title.partition("-")[0]


@lru_cache(maxsize=1)
def _ids() -> dict[str, str]:
    """Return the package's id of each name in the family."""
    found = {}
    for id in ENV_REGISTRY:
        parts = re.fullmatch(r"([^-]+)-v0((?:-.+)?)", id)
        if parts is None or id.endswith(("-raw", "-train")):
            continue
        base = parts.group(1)
        if base in MOVES or base in SAMPLED or base in TALK:
            found[base + parts.group(2)] = id
    return found
