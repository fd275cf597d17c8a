"""MiniHack: small levels of NetHack, each for one thing an agent must be able to do.

Ids: `minihack/Room-5x5` is the package's `MiniHack-Room-5x5-v0`; so for all its navigation and
skill tasks. Left out are those that cannot be made here: Boxoban (its levels are no part of the
package), LavaCrossing and SimpleCrossing (refused by MiniGrid 3), and the two empty "Custom" ids;
MultiRoom needs MiniGrid.
Source: Samvelyan et al. 2021; told in words as in `nethack.py`.

Rewards, ends and limits are the package's. Its Memento tasks end "successfully" on the wrong way
too, for a reward of -1: success here needs a positive one. The goal's words are ours. An oracle
is there where it always solves (`minihack_oracle.py`).
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
import warnings
from pathlib import Path

import gymnasium
import nle

from palaestra.core.environment import Action, Capability, Observation, Transition
from palaestra.core.task import Task
from palaestra.environments.grid.minihack_oracle import Expert, knows
from palaestra.environments.grid.nethack import NetHack
from palaestra.environments.grid.nethack_game import SEEN, Game
from palaestra.environments.way import Way


def _import() -> types.ModuleType:
    """The package; it asks `pkg_resources`, which setuptools has dropped, for folders only."""
    missing = importlib.util.find_spec("pkg_resources") is None
    if missing:
        stand_in = types.ModuleType("pkg_resources")
        stand_in.resource_filename = _file  # type: ignore[attr-defined]
        sys.modules["pkg_resources"] = stand_in
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("minihack")
    finally:
        if missing:
            del sys.modules["pkg_resources"]


def _file(package: str, name: str) -> str:
    """Where a file of a package lies."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return str(Path(found.origin).parent / name)


minihack = _import()

PREFIX = "MiniHack-"
ABSENT = re.compile(r".*-Custom|Boxoban.*|(Lava|Simple)Crossing.*")
STAIRS = "Stand on the staircase down."
GOALS = {  # by the beginning of the name; the first that fits
    "Room-Monster": f"{STAIRS} Beware of monsters.",
    "Room-Trap": f"{STAIRS} Beware of hidden traps.",
    "Room-Ultimate": f"{STAIRS} Beware of monsters and hidden traps.",
    "KeyRoom": f"{STAIRS} It is behind a locked door: pick up the key, and apply it at the door.",
    "CorridorBattle": f"{STAIRS} Fight the rats in the corridor, one at a time.",
    "River": f"{STAIRS} It is across the river: push boulders into the water.",
    "HideNSeek-Lava": f"{STAIRS} Hide from the monster, and keep off the lava.",
    "HideNSeek": f"{STAIRS} Hide from the monster.",
    "Memento": "Kill the grid bug. The creature at the start tells which way it is; "
    "on a wrong way is a trap that ends the game.",
    "ExploreMaze": "Eat the apples, and at last stand on the staircase down, which ends the game.",
    "Sokoban": "Push boulders into all the pits, then stand on the staircase down. "
    "Do not step into a pit.",
    "Eat": "Eat the apple.",
    "Pray": "Pray on the altar.",
    "Sink": "Drink from the sink.",
    "Wield": "Wield the dagger.",
    "Wear": "Wear the robe.",
    "PutOn": "Put on the amulet.",
    "Zap": "Zap the wand.",
    "Read": "Read the scroll.",
    "Levitate-Boots": "Wear the boots to levitate.",
    "Levitate-Ring": "Put on the ring to levitate.",
    "Levitate-Potion": "Drink the potion to levitate.",
    "Levitate": "Levitate, with the help of what lies here.",
    "Freeze-Wand": "Make a bolt of cold bounce off a wall: zap the wand.",
    "Freeze-Horn": "Make a bolt of cold bounce off a wall: apply the horn.",
    "Freeze-Random": "Make a bolt of cold bounce off a wall, with the help of what lies here.",
    "Freeze-Lava": f"{STAIRS} It is across the lava: freeze it, with the help of what lies here.",
    "LavaCross": f"{STAIRS} It is across the lava: use what you find or carry.",
    "WoD-Easy": "Kill the minotaur: zap the wand of death at it.",
    "WoD": f"{STAIRS} A minotaur is in the way: zap the wand of death at it.",
    "ClosedDoor": f"{STAIRS} It is behind a closed door.",
    "LockedDoor": f"{STAIRS} It is behind a locked door: kick it in.",
    "Quest": f"{STAIRS} Use what you find or carry against lava and monsters.",
}


class MiniHack(NetHack):
    """A MiniHack level."""

    brief = True
    programs = ("bash",)  # the package compiles its levels with a script

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._trial: MiniHack | None = None  # where the expert tries out its way
        self._way = Way()
        if knows(name):  # of this world, not of the family
            self.capabilities = self.capabilities | {Capability.ORACLE}  # type: ignore[misc]

    @classmethod
    def names(cls) -> list[str]:
        return sorted(_ids())

    @property
    def goal(self) -> str:
        return next((goal for head, goal in GOALS.items() if self.name.startswith(head)), STAIRS)

    def reset(self, task: Task) -> Observation:
        self._way.forget()
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        self._way.taken(action.text)
        return super().step(action)

    def oracle(self) -> list[Action]:
        """A way from here to the goal, tried out in another world; empty where that failed."""
        if Capability.ORACLE not in self.capabilities:
            self._undeclared(Capability.ORACLE)
        return [] if self._game.over else self._way.rest(self._found)

    def _found(self) -> list[str]:
        trial = self._trial = self._trial or MiniHack(self.name)
        trial.restore(self.snapshot())
        expert, way = Expert(self.name), list[str]()
        while (screen := trial._screen) and not trial._game.over:
            way.append(expert.next(screen))
            if not trial.step(Action(way[-1])).valid:
                return []
        return way if trial._game.won else []

    def close(self) -> None:
        super().close()
        if self._trial is not None:
            self._trial.close()

    def _make(self) -> Game:
        return Game(_ids()[self.name], observation_keys=SEEN)

    @property
    def _id(self) -> str:
        return f"minihack/{self.name}"

    @property
    def _version(self) -> str:
        return f"{minihack.__version__}-{nle.__version__}"


def _ids() -> dict[str, str]:
    """Name within the family -> gymnasium id."""
    ids = [id for id in gymnasium.registry if id.startswith(PREFIX)]
    names = {re.sub(r"-v\d+$", "", id.removeprefix(PREFIX)): id for id in ids}
    rooms = importlib.util.find_spec("minigrid") is not None
    return {
        name: id
        for name, id in names.items()
        if not ABSENT.fullmatch(name) and (rooms or not name.startswith("MultiRoom"))
    }
