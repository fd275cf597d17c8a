"""One game of NetHack behind its gymnasium interface, made repeatable and tidy.

What the package leaves open and a world may not:

- NetHack asks the clock for the moon and for the birthday of the game (which names shopkeepers
  and chooses ants). The package fixes the moon on request; the birthday is fixed here, after the
  first level is made, which never has any of these.
- A game that ends makes the whole process deaf to hang-ups. What was set before is set again.
- An episode that the step limit cut is "terminated" there, and its status says "aborted".
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import io
import os
import signal
import warnings
from typing import Any

import gymnasium
from nle.nethack import Nethack

BIRTHDAY = 1_000_000_000  # of every game, in seconds since 1970
HANG_UPS = (int(signal.SIGHUP), int(signal.SIGXCPU))
SIGACTION = ctypes.CDLL(None).sigaction
ROOM_FOR_SIGACTION = 512  # bytes; the system's structure is smaller everywhere
SEEN = ("blstats", "message", "inv_strs", "inv_letters", "screen_descriptions", "tty_chars")
"""What is read of the package's observations; it copies at every step all that it is asked for."""


class Game:
    """An environment of the package with that id: started by a seed, played by its actions."""

    def __init__(self, id: str, **options: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium's notices, none about us
            made: Any = gymnasium.make(id, disable_env_checker=True, fix_moon_phase=True, **options)
        self.env: Any = made.unwrapped
        self._places = {key: at for at, key in enumerate(self.env._observation_keys)}
        self.pressed: list[int] = []  # actions since the start
        self.over = True  # nothing can be pressed
        self.died = self.won = self.cut = False
        self._hang_ups = HangUps()

    @property
    def actions(self) -> list[Any]:
        return list(self.env.actions)

    @property
    def limit(self) -> int:
        """Steps after which the package aborts an episode."""
        return int(self.env._max_episode_steps)

    def start(self, seed: int) -> None:
        """Begin the game of that seed.

        The class's own method sets the seeds: the Challenge forbids its own (so that entrants
        choose no games), and that of the rooms from MiniGrid calls what gymnasium has dropped.
        """
        if hasattr(self.env, "minigrid_env"):
            self.env.minigrid_env.reset(seed=seed)  # whose rooms the next reset draws
        Nethack.set_initial_seeds(self.env.nethack, seed, seed, False)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.env.reset()
        _set_birthday(self.env.nethack.dlpath)
        self.pressed = []
        self.over = self.died = self.won = self.cut = False

    def press(self, action: int) -> float:
        """Take an action by its number; the package's reward for it."""
        self._hang_ups.keep()
        try:
            _, reward, done, _, info = self.env.step(action)
        except BaseException:
            self._hang_ups.put_back()
            raise
        self.pressed.append(action)
        if done:
            self._hang_ups.put_back()
            end = info["end_status"].name
            self.over = True
            self.cut = end == "ABORTED"
            # the wrong arm of a Memento maze, too, ends a task "successfully", but pays -1
            solved = end == "TASK_SUCCESSFUL" and reward > 0
            self.won = solved or bool(info["is_ascended"])
            self.died = not self.won and not self.cut
        return float(reward)

    def see(self, key: str) -> Any:
        """A present observation of the package, by its key; it changes with the next action."""
        return self.env.last_observation[self._places[key]]

    def close(self) -> None:
        """Free the library and the folder of this game."""
        self.over = True
        self._hang_ups.keep()
        try:
            self.env.close()
        finally:
            self._hang_ups.put_back()


class HangUps:
    """What this process does on hang-ups: what a game that ends changes, and we put back.

    By the system's own call: Python's can be used in the main thread only, and does not know what
    a library has set.
    """

    def __init__(self) -> None:
        self._kept = [(number, (ctypes.c_char * ROOM_FOR_SIGACTION)()) for number in HANG_UPS]

    def keep(self) -> None:
        for number, kept in self._kept:
            SIGACTION(number, None, kept)

    def put_back(self) -> None:
        for number, kept in self._kept:
            SIGACTION(number, kept, None)


def _set_birthday(library: str) -> None:
    """Write the birthday into the loaded copy of the game's library that has this path."""
    handle = _ctypes.dlopen(library, os.RTLD_NOW | os.RTLD_NOLOAD)
    try:
        ctypes.c_long.from_address(_ctypes.dlsym(handle, "ubirthday")).value = BIRTHDAY
    finally:
        _ctypes.dlclose(handle)
