"""Atari 2600 games in the Arcade Learning Environment, told by the machine's memory.

Ids: `arcade/Pong` is gymnasium's `ALE/Pong-v5`, and so on for its 104 games (of the package's 108
cartridges, ALE has no single player for combat, joust, maze_craze and warlords). Sources:
Bellemare et al. 2013, Machado et al. 2018; the package `ale-py`. Everything is as those ids have
it: an action is held for 4 frames, at each of which the one before goes on with chance 0.25; the
minimal set of actions; at most 108,000 frames, then truncated; game over is terminated; the
reward is the change of the game's own score.

What is told is ours: score, lives, and the 128 bytes of memory in hex; for Pong, Breakout, Boxing
and Freeway instead what some bytes mean (`atari_ram.py`; `Pong-ram` has the bytes). `native()` has
memory and picture as arrays.

ALE knows no success. Ours: to end above 0 in a duel whose score is one's own points less the
other's (`DUELS`: Pong to 21, Boxing by knockout or on points, FishingDerby to 99, IceHockey on
goals; not Tennis, whose score mixes points and games). Other games cannot be solved.

ALE's saved state lacks one thing: which action is held, and may stick for the next frames. A
snapshot therefore also has a state from 8 to 15 actions before, and the actions since: replaying
them leaves the same action held, unless the first 32 frames of that replay all stuck (once in
10^19). A snapshot from the first 15 actions replays from the reset, and cannot err.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
import zlib
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ale_py
    import gymnasium
import numpy as np

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Task, TaskSet
from palaestra.environments.arcade.atari_ram import READINGS, written
from palaestra.environments.pictures import png
from palaestra.environments.snapshots import opened, sealed

PREFIX, SUFFIX = "ALE/", "-v5"
RAW = "-ram"  # after the name of a game whose memory has a reading: told as bytes all the same
DUELS = frozenset({"Boxing", "FishingDerby", "IceHockey", "Pong"})
BACK = 8  # a snapshot replays at least so many actions, and fewer than twice as many
STARTS = 256  # how many new games are kept: to load one takes as long as 400 actions
TURNS = 4500  # five minutes, as Bellemare et al. play: 18,000 frames
PARTS = re.compile("up|down|left|right|fire|noop")

_starts: dict[tuple[str, int], bytes] = {}  # states of new games, by game and seed

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # or it prints who it is


class Atari(Environment):
    """A game."""

    capabilities = frozenset({Capability.SNAPSHOT, Capability.ADMISSIBLE, Capability.PICTURE})

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._game = name.removesuffix(RAW)
        self._reading = READINGS.get(name)
        with contextlib.redirect_stdout(io.StringIO()):
            made: Any = gymnasium.make(
                f"{PREFIX}{self._game}{SUFFIX}", obs_type="ram", disable_env_checker=True
            )
        self._env = made.unwrapped
        meanings = [meaning.lower() for meaning in self._env.get_action_meanings()]
        self._words = [" ".join(PARTS.findall(meaning)) for meaning in meanings]
        self._numbers = {meaning: number for number, meaning in enumerate(meanings)}
        self._started = self._over = False
        self._mortal = False  # whether the game counts lives
        self._score = 0.0
        self._anchor = self._middle = b""  # states; the second is BACK actions later
        self._since: list[int] = []  # actions since the anchor
        self._picture: Any = None  # of a restored state: the emulator has another one still

    @classmethod
    def names(cls) -> list[str]:
        games = [id.removeprefix(PREFIX).removesuffix(SUFFIX) for id in _registered()]
        return sorted([*games, *(f"{game}{RAW}" for game in READINGS)])

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        title = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", self._game)
        told = self._reading.note if self._reading else "You see the machine's memory in hex."
        return (
            f"You play the Atari game {title}. {told} "
            f"Reply with one action: {', '.join(self._words)}."
        )

    @property
    def typical_turns(self) -> int:
        return TURNS

    def reset(self, task: Task) -> Observation:
        """Start the game with the chances of `task.seed`.

        Raises:
            InputError: the task has parameters; the seed says everything here.
        """
        if task.parameters:
            raise InputError(
                f"Arcade tasks take no parameters, but '{task.id}' has "
                f"{', '.join(map(repr, task.parameters))}; choose a game by its name instead."
            )
        self._anchor, self._middle, self._since = self._start(task.seed), b"", []
        self._started, self._over, self._score = True, False, 0.0
        self._mortal = self._env.ale.lives() > 0
        self._picture = None
        return Observation(self._told())

    def step(self, action: Action) -> Transition:
        self._check_started()
        if self._over:
            return Transition(Observation("The game is over."), valid=False)
        number = self._numbers.get(parse(action.text))
        if number is None:
            said = f"You can only reply with one of these: {', '.join(self._words)}."
            return Transition(Observation(said), valid=False)
        reward, terminated, truncated = self._act(number)
        self._score += reward
        self._over = terminated or truncated
        end = " Game over." if terminated else " Time is over." if truncated else ""
        return Transition(
            Observation(self._told() + end),
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
            success=terminated and self._game in DUELS and self._score > 0,
        )

    def close(self) -> None:
        self._env.close()
        self._started = False

    def native(self) -> dict[str, Any]:
        """The present state as arrays, as ALE gives them, for learners that take such.

        `ram` is uint8[128], `image` uint8[210, 160, 3] (some games have more rows).
        """
        self._check_started()
        picture = self._env.ale.getScreenRGB() if self._picture is None else self._picture
        return {"ram": self._env.ale.getRAM(), "image": picture}

    def picture(self) -> bytes:
        """`native`'s image."""
        return png(self.native()["image"])

    def snapshot(self) -> bytes:
        """The emulator's states, here and some actions before, with the picture."""
        state, picture = self._state(), self.native()["image"]
        head = {
            "score": self._score,
            "over": self._over,
            "mortal": self._mortal,
            "since": self._since,
            "sizes": [len(self._anchor), len(self._middle), len(state)],
            "shape": picture.shape,
        }
        parts = (self._anchor, self._middle, state, picture.tobytes())
        body = json.dumps(head).encode() + b"\n" + zlib.compress(b"".join(parts), 1)
        return sealed(self._id, ale_py.__version__, body)

    def restore(self, snapshot: bytes) -> None:
        """Go on from a snapshot; raises InputError if it is another game's, or another version's.

        Its first part replays actions, which leaves the right one held; the second sets the state.
        """
        line, _, packed = opened(snapshot, self._id, ale_py.__version__).partition(b"\n")
        head = json.loads(line)
        body, parts = zlib.decompress(packed), []
        for size in head["sizes"]:
            parts.append(body[:size])
            body = body[size:]
        self._anchor, self._middle, state = parts
        self._since = head["since"]
        self._env.ale.reset_game()  # no action is held
        self._env.restore_state(ale_py.ALEState(self._anchor))
        for number in self._since:
            self._env.step(number)
        self._env.restore_state(ale_py.ALEState(state))
        self._picture = np.frombuffer(body, np.uint8).reshape(head["shape"])
        self._started = True
        self._score, self._over, self._mortal = head["score"], head["over"], head["mortal"]

    def admissible(self) -> list[str]:
        """The game's minimal actions; each may be said at any time."""
        return [] if self._over else self._words.copy()

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _id(self) -> str:
        return f"arcade/{self.name}"

    def _start(self, seed: int) -> bytes:
        """Start the game, and return its state."""
        known = _starts.get((self._game, seed))
        if known is not None:
            self._env.ale.reset_game()
            self._env.restore_state(ale_py.ALEState(known))
            return known
        with contextlib.redirect_stdout(io.StringIO()):
            self._env.reset(seed=seed)
        if len(_starts) == STARTS:
            del _starts[next(iter(_starts))]
        _starts[self._game, seed] = self._state()
        return _starts[self._game, seed]

    def _act(self, number: int) -> tuple[float, bool, bool]:
        _, reward, terminated, truncated, _ = self._env.step(number)
        self._picture = None
        self._since.append(number)
        if len(self._since) == BACK:
            self._middle = self._state()
        elif len(self._since) == 2 * BACK:
            self._anchor, self._middle = self._middle, self._state()
            del self._since[:BACK]
        return float(reward), bool(terminated), bool(truncated)

    def _state(self) -> bytes:
        """The emulator's state with its dice, which the sticking of actions is drawn from."""
        return self._env.clone_state(include_rng=True).serialize()

    def _told(self) -> str:
        ram = self._env.ale.getRAM().tolist()
        told = self._reading.tell(ram) if self._reading else f"Memory: {written(ram)}"
        lives = f", lives {self._env.ale.lives()}" if self._mortal else ""
        return f"Score {self._score:g}{lives}. {told}"

    def _check_started(self) -> None:
        if not self._started:
            raise InputError("This game has not begun; call reset with a task first.")


def parse(text: str) -> str:
    """The letters of the first line of `text`: ALE writes an action's words together."""
    lines = text.strip().lower().splitlines()
    return re.sub(r"[^a-z]", "", lines[0]) if lines else ""


def _registered() -> list[str]:
    """Gymnasium's ids of the games, which importing ale_py registers."""
    return [id for id in gymnasium.registry if id.startswith(PREFIX) and id.endswith(SUFFIX)]
