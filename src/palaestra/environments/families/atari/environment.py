"""Atari 2600 games in the Arcade Learning Environment, described by the machine's memory.

Ids: `arcade/Pong` is gymnasium's `ALE/Pong-v5`, and so on for its 104 games (of the package's 108
cartridges, ALE has no single player for combat, joust, maze_craze and warlords). Sources:
Bellemare et al. 2013, Machado et al. 2018; the package `ale-py`. The settings are those of these
ids: frame skip 4; sticky actions with probability 0.25 per frame; the minimal action set; at most
108,000 frames, then truncated; game over is terminated; the reward is the change of the game's own
score.

The observation is ours: score, lives, and the 128 bytes of memory in hex; for Pong, Breakout,
Boxing and Freeway the meaning of some bytes instead (`ram.py`; `Pong-ram` has the bytes).
`native()` has memory and picture as arrays.

ALE does not define success. Ours: a final score above 0 in a duel whose score is the agent's points
minus the opponent's (`DUELS`: Pong to 21, Boxing by knockout or on points, FishingDerby to 99,
IceHockey on goals; not Tennis, whose score mixes points and games). Other games cannot be solved.

ALE's saved state lacks one thing: the held action, which may stick for the next frames. A snapshot
therefore also has a state from 8 to 15 actions before, and the actions since. Replaying them leaves
the same action held, unless the first 32 frames of that replay all stick (probability 10^-19). A
snapshot from the first 15 actions replays from the reset and is exact.
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

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.rare_capabilities import Pictured
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, refused, without_parameters
from palaestra.environments.families.atari.ram import READINGS, hex_dump
from palaestra.environments.shared.png_images import png

PREFIX, SUFFIX = "ALE/", "-v5"
RAW = "-ram"  # suffix for a game in `READINGS`: show the bytes instead
DUELS = frozenset({"Boxing", "FishingDerby", "IceHockey", "Pong"})
BACK = 8  # a snapshot replays at least this many actions, and fewer than twice as many
STARTS = 256  # size of the cache of new games: loading one takes as long as 400 actions
TURNS = 4500  # five minutes, as in Bellemare et al.: 18,000 frames
PARTS = re.compile("up|down|left|right|fire|noop")

_starts: dict[tuple[str, int], bytes] = {}  # states of new games, by game and seed

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner


class Atari(
    Adapter,
    Pictured,
    id="arcade",
    capabilities={"snapshot", "admissible", "picture"},
    typical_turns=TURNS,
):
    """One Atari game."""

    OVER = "The game is over."

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
        self._mortal = False  # whether the game counts lives
        self._score = 0.0
        self._anchor = self._middle = b""  # states; the second is BACK actions later
        self._since: list[int] = []  # actions since the anchor
        self._picture: Any = None  # of a restored state: the emulator still shows an older one

    @classmethod
    def names(cls) -> list[str]:
        games = [id.removeprefix(PREFIX).removesuffix(SUFFIX) for id in _registered()]
        return sorted([*games, *(f"{game}{RAW}" for game in READINGS)])

    @property
    def instructions(self) -> str:
        title = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", self._game)
        note = self._reading.note if self._reading else "You see the machine's memory in hex."
        return (
            f"You play the Atari game {title}. {note} "
            f"Reply with one action: {', '.join(self._words)}."
        )

    def _begin(self, task: Task) -> Observation:
        """Start the game with `task.seed`.

        Raises:
            InputError: the task has parameters; here a task is its seed.
        """
        without_parameters(task, "choose a game by its name instead")
        self._anchor, self._middle, self._since = self._start(task.seed), b"", []
        self._score = 0.0
        self._mortal = self._env.ale.lives() > 0
        self._picture = None
        return Observation(self._render())

    def _act(self, action: Action) -> Transition:
        number = self._numbers.get(parse(action.text))
        if number is None:
            return refused(f"You can only reply with one of these: {', '.join(self._words)}.")
        reward, terminated, truncated = self._play(number)
        self._score += reward
        end = " Game over." if terminated else " Time is over." if truncated else ""
        return Transition(
            Observation(self._render() + end),
            reward=reward,
            terminated=terminated,
            truncated=truncated and not terminated,
            success=terminated and self._game in DUELS and self._score > 0,
        )

    def close(self) -> None:
        self._env.close()
        self._task = None

    def native(self) -> dict[str, Any]:
        """Return the current state as ALE's arrays, for learners that use arrays.

        `ram` is uint8[128], `image` uint8[210, 160, 3] (some games have more rows).
        """
        self._current()
        picture = self._env.ale.getScreenRGB() if self._picture is None else self._picture
        return {"ram": self._env.ale.getRAM(), "image": picture}

    def picture(self) -> bytes:
        """Return `native`'s image as a PNG."""
        return png(self.native()["image"])

    def snapshot(self) -> bytes:
        """Save the emulator's states, current and some actions before, with the picture."""
        state, picture = self._state(), self.native()["image"]
        head = {
            "score": self._score,
            "mortal": self._mortal,
            "since": self._since,
            "sizes": [len(self._anchor), len(self._middle), len(state)],
            "shape": picture.shape,
        }
        parts = (self._anchor, self._middle, state, picture.tobytes())
        body = json.dumps(head).encode() + b"\n" + zlib.compress(b"".join(parts), 1)
        return self._saved(body, ale_py.__version__)

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot; raises InputError for another game or version.

        First replay the actions, which leaves the right one held; then set the state.
        """
        line, _, packed = self._loaded(snapshot, ale_py.__version__).partition(b"\n")
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
        self._score, self._mortal = head["score"], head["mortal"]

    def admissible(self) -> list[str]:
        """List the game's minimal actions; each is valid at any time."""
        return [] if self._over else self._words.copy()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self, seed: int) -> bytes:
        """Start the game and return its state."""
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

    def _play(self, number: int) -> tuple[float, bool, bool]:
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
        """Return the emulator's state with its random generator, which samples sticky actions."""
        return self._env.clone_state(include_rng=True).serialize()

    def _render(self) -> str:
        ram = self._env.ale.getRAM().tolist()
        memory = self._reading.render(ram) if self._reading else f"Memory: {hex_dump(ram)}"
        lives = f", lives {self._env.ale.lives()}" if self._mortal else ""
        return f"Score {self._score:g}{lives}. {memory}"


def parse(text: str) -> str:
    """Return the letters of the first line of `text`: ALE's action names have no spaces."""
    lines = text.strip().lower().splitlines()
    return re.sub(r"[^a-z]", "", lines[0]) if lines else ""


def _registered() -> list[str]:
    """List Gymnasium's ids of the games, which importing ale_py registers."""
    return [id for id in gymnasium.registry if id.startswith(PREFIX) and id.endswith(SUFFIX)]
