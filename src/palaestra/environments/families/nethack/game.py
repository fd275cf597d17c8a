"""One game of NetHack behind its gymnasium interface, made reproducible and free of side effects.

It corrects three behaviours of the package:

- NetHack reads the clock for the phase of the moon and for the game's birthday (which names
  shopkeepers and chooses ants). The package fixes the moon on request. The birthday is fixed here,
  after the first level is made, because that level never has shopkeepers or ants.
- A game that ends makes the whole process ignore hang-up signals. The previous handlers are
  restored.
- An episode cut by the step limit is "terminated" in the package, with the status "aborted".
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
SIGACTION_BYTES = 512  # the structure is smaller on every system
SEEN = ("blstats", "message", "inv_strs", "inv_letters", "screen_descriptions", "tty_chars")
"""The package's observations that are used; it copies each requested one at every step."""


class Game:
    """One of the package's environments: started by a seed, played by action numbers."""

    def __init__(self, id: str, **options: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium's notices do not concern us
            made: Any = gymnasium.make(id, disable_env_checker=True, fix_moon_phase=True, **options)
        self.env: Any = made.unwrapped
        self._places = {key: at for at, key in enumerate(self.env._observation_keys)}
        self.pressed: list[int] = []  # actions since the start
        self.over = True  # no key can be pressed
        self.died = self.won = self.cut = False
        self._hang_ups = HangUpHandlers()

    @property
    def actions(self) -> list[Any]:
        return list(self.env.actions)

    @property
    def limit(self) -> int:
        """Steps after which the package aborts an episode."""
        return int(self.env._max_episode_steps)

    def start(self, seed: int) -> None:
        """Begin the game of that seed.

        Seeds are set through the base class: Challenge forbids seeding (so that entrants cannot
        choose games), and the levels from MiniGrid call a method that gymnasium has dropped.
        """
        if hasattr(self.env, "minigrid_env"):
            self.env.minigrid_env.reset(seed=seed)  # the next reset uses its rooms
        Nethack.set_initial_seeds(self.env.nethack, seed, seed, False)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.env.reset()
        _set_birthday(self.env.nethack.dlpath)
        self.pressed = []
        self.over = self.died = self.won = self.cut = False

    def press(self, action: int) -> float:
        """Take an action by its number; return the package's reward for it."""
        self._hang_ups.save()
        try:
            _, reward, done, _, info = self.env.step(action)
        except BaseException:
            self._hang_ups.restore()
            raise
        self.pressed.append(action)
        if done:
            self._hang_ups.restore()
            end = info["end_status"].name
            self.over = True
            self.cut = end == "ABORTED"
            # The wrong arm of a Memento maze also ends "successfully", but with reward -1.
            solved = end == "TASK_SUCCESSFUL" and reward > 0
            self.won = solved or bool(info["is_ascended"])
            self.died = not self.won and not self.cut
        return float(reward)

    def see(self, key: str) -> Any:
        """Return the package's current observation of a key; the next action overwrites it."""
        return self.env.last_observation[self._places[key]]

    def close(self) -> None:
        """Free the library and the folder of this game."""
        self.over = True
        self._hang_ups.save()
        try:
            self.env.close()
        finally:
            self._hang_ups.restore()


class HangUpHandlers:
    """This process's handlers of hang-up signals, which a game changes when it ends.

    They are saved and restored by the system call: Python's `signal` works in the main thread only
    and does not see handlers set by a library.
    """

    def __init__(self) -> None:
        self._saved = [(number, (ctypes.c_char * SIGACTION_BYTES)()) for number in HANG_UPS]

    def save(self) -> None:
        for number, saved in self._saved:
            SIGACTION(number, None, saved)

    def restore(self) -> None:
        for number, saved in self._saved:
            SIGACTION(number, saved, None)


def _set_birthday(library: str) -> None:
    """Write the birthday into the loaded copy of the game's library at this path."""
    handle = _ctypes.dlopen(library, os.RTLD_NOW | os.RTLD_NOLOAD)
    try:
        ctypes.c_long.from_address(_ctypes.dlsym(handle, "ubirthday")).value = BIRTHDAY
    finally:
        _ctypes.dlclose(handle)
