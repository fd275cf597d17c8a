"""MiniHack: small levels of NetHack, each of which tests one skill.

Ids: `minihack/Room-5x5` is the package's `MiniHack-Room-5x5-v0`, and likewise for its other
navigation and skill tasks. Excluded are tasks that cannot be created here: Boxoban (the package
does not ship its levels), LavaCrossing and SimpleCrossing (refused by MiniGrid 3), and the two
empty "Custom" ids. MultiRoom needs MiniGrid.
Source: Samvelyan et al. 2021; rendered as text like NetHack.

Rewards, ends and limits are the package's. Its Memento tasks also end "successfully" on the wrong
path, with a reward of -1: success here needs a positive reward. The wording of the goal is ours.
Levels that the expert solves reliably have an oracle (`oracle.py`).
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import nle

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.task import Task
from palaestra.environments.families.minihack.oracle import Expert, knows
from palaestra.environments.families.minihack.turns import TURNS, UNKNOWN
from palaestra.environments.families.nethack.environment import NetHack
from palaestra.environments.families.nethack.game import SEEN, Game
from palaestra.environments.shared.oracle_plan import OraclePlan


def _import() -> types.ModuleType:
    """Import the package with a stand-in for `pkg_resources`, which setuptools has dropped.

    The package uses it only to find folders.
    """
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
    """Return the path of a file in a package."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return str(Path(found.origin).parent / name)


minihack = _import()

PREFIX = "MiniHack-"
ABSENT = re.compile(r".*-Custom|Boxoban.*|(Lava|Simple)Crossing.*")
STAIRS = "Stand on the staircase down."
GOALS = {  # by prefix of the name; the first match counts
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


class MiniHack(
    NetHack,
    id="minihack",
    needs=("bash",),  # the package compiles its levels with a script
):
    """A MiniHack level."""

    package = f"{minihack.__version__}-{nle.__version__}"
    brief = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._trial: MiniHack | None = None  # a copy in which the expert tries out its plan
        self._plan = OraclePlan()

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        has = spec.capabilities | ({Capability.ORACLE} if knows(name) else set())
        return replace(spec, capabilities=has, typical_turns=TURNS.get(name, UNKNOWN))

    @classmethod
    def names(cls) -> list[str]:
        return sorted(_ids())

    @property
    def goal(self) -> str:
        name = self.spec.name
        return next((goal for head, goal in GOALS.items() if name.startswith(head)), STAIRS)

    def _begin(self, task: Task) -> Observation:
        self._plan.clear()
        return super()._begin(task)

    def _act(self, action: Action) -> Transition:
        self._plan.record(action.text)
        return super()._act(action)

    def oracle(self) -> list[Action]:
        """Return a plan from here to the goal, verified in a copy; [] if the expert failed."""
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        return [] if self._game.over else self._plan.remaining(self._find_plan)

    def _find_plan(self) -> list[str]:
        trial = self._trial = self._trial or MiniHack(self.spec.name)
        trial.restore(self.snapshot())
        expert, plan = Expert(self.spec.name), list[str]()
        while (screen := trial._screen) and not trial._game.over:
            plan.append(expert.next(screen))
            if not trial.step(Action(plan[-1])).valid:
                return []
        return plan if trial._game.won else []

    def close(self) -> None:
        super().close()
        if self._trial is not None:
            self._trial.close()

    def _make(self) -> Game:
        return Game(_ids()[self.spec.name], observation_keys=SEEN)


def _ids() -> dict[str, str]:
    """Return the gymnasium id of each name in the family."""
    ids = [id for id in gymnasium.registry if id.startswith(PREFIX)]
    names = {re.sub(r"-v\d+$", "", id.removeprefix(PREFIX)): id for id in ids}
    rooms = importlib.util.find_spec("minigrid") is not None
    return {
        name: id
        for name, id in names.items()
        if not ABSENT.fullmatch(name) and (rooms or not name.startswith("MultiRoom"))
    }
