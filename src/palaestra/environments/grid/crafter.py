"""Crafter, told in words: an open world of gathering, building, fighting and survival.

Ids: `crafter/full`, and one world for each of the 22 achievements: `crafter/collect_wood`, …
Source: Hafner 2021 ("Benchmarking the Spectrum of Agent Capabilities"), the package `crafter`.

The world, its rules, its rewards (1 for a step with a new achievement, a tenth for each point of
health won or lost), its death (terminated) and its limit of 10,000 steps (truncated) are the
package's. Ours are the words, and the goals: in a world of one achievement, unlocking it ends the
episode with success; in `full` nothing short of all 22 does.

What is told is what the package's picture shows of the 9 x 7 places around the player: what lies
on its four sides, each creature, and of all else the nearest (as SmartPlay has it, Wu et al. 2024)
and the number in view, with the vital signs and the inventory. A new achievement is told too.
`native()` has the picture itself. How worlds became repeatable: `crafter_world.py`; who plays the
oracle: `crafter_expert.py`.
"""

from __future__ import annotations

import functools
import json
import random
import re
from typing import Any

from crafter import constants

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Task, TaskSet
from palaestra.environments.grid.crafter_expert import solution
from palaestra.environments.grid.crafter_text import describe, listed, recipes, sensible, spoken
from palaestra.environments.grid.crafter_world import VERSION, Repeatable, fresh
from palaestra.environments.pictures import png
from palaestra.environments.snapshots import opened, sealed
from palaestra.environments.way import Way

FULL = "full"
WORDS = {action.replace("_", " "): number for number, action in enumerate(constants.actions)}
ALIASES = {way: f"move {way}" for way in ("left", "right", "up", "down")} | {"wait": "noop"}

TURNS = {
    20: ("collect_wood",),
    40: ("collect_drink", "eat_cow", "make_wood_pickaxe", "make_wood_sword", "place_table"),
    60: ("collect_sapling", "collect_stone", "place_plant", "place_stone", "wake_up"),
    90: ("collect_coal", "defeat_skeleton", "make_stone_pickaxe", "make_stone_sword"),
    150: ("collect_iron", "place_furnace"),
    250: ("defeat_zombie", "make_iron_pickaxe", "make_iron_sword"),
    1000: ("collect_diamond", "eat_plant", FULL),
}
"""A fair number of actions: the scripted player's longest of twenty ways, and a third more."""


class Crafter(Environment):
    """A world of Crafter."""

    capabilities = frozenset(
        {
            Capability.STATE_KEY,
            Capability.SNAPSHOT,
            Capability.PROGRESS,
            Capability.ADMISSIBLE,
            Capability.PICTURE,
        }
    )

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.capabilities = self.capabilities_of(name)  # type: ignore[misc]
        self._goals = frozenset(constants.achievements if name == FULL else [name])
        self._env: Repeatable | None = None
        self._over = False
        self._way = Way()

    @classmethod
    def names(cls) -> list[str]:
        return [FULL, *constants.achievements]

    @classmethod
    def capabilities_of(cls, name: str) -> frozenset[Capability]:
        """All but `full` have an oracle: the scripted player rarely lives to unlock all 22."""
        return cls.capabilities | ({Capability.ORACLE} if name != FULL else set())

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        if self.name == FULL:
            goal = "Stay alive, and do each of these once: " + listed(constants.achievements)
        else:
            goal = "Goal: " + spoken(self.name)
        rules = "; ".join(recipes(sorted(self._goals)))
        return (
            "You live in a world of grass, trees, water, stone and creatures. "
            f"{goal}.{f' Rules: {rules}.' if rules else ''} 'do' collects, drinks, eats or hits "
            f"what you face; (3) means 3 in view. Reply with one action: {', '.join(WORDS)}."
        )

    @property
    def typical_turns(self) -> int:
        return next(turns for turns, names in TURNS.items() if self.name in names)

    def reset(self, task: Task) -> Observation:
        """Start the world of `task.seed`.

        Raises:
            InputError: the task has parameters; the seed says everything here.
        """
        if task.parameters:
            raise InputError(
                f"Crafter tasks take no parameters, but '{task.id}' has "
                f"{', '.join(map(repr, task.parameters))}; choose a goal by its name instead."
            )
        if self._env is None:
            self._env = Repeatable(seed=task.seed)
        self._env.load(fresh(task.seed))
        self._over = False
        self._way.forget()
        return Observation(describe(self._env))

    def step(self, action: Action) -> Transition:
        env = self._running()
        self._way.taken(action.text)
        if self._over:
            return Transition(Observation("It is over."), valid=False)
        word = parse(action.text)
        if word is None:
            said = f"You can only reply with one of these: {', '.join(WORDS)}."
            return Transition(Observation(said), valid=False)
        before = set(env.unlocked)
        _, reward, done, info = env.step(WORDS[word])
        new = sorted(env.unlocked - before)
        dead, success = info["discount"] == 0, env.unlocked >= self._goals
        self._over = bool(done) or success
        said = describe(env) + (" You died." if dead else "")
        return Transition(
            Observation(f"Achieved: {listed(new)}.\n{said}" if new else said),
            reward=float(reward),
            terminated=dead or success,
            truncated=self._over and not (dead or success),
            success=success,
            info={"unlocked": new} if new else {},
        )

    def close(self) -> None:
        self._env = None

    def native(self) -> dict[str, Any]:
        """The picture of the present state, as the package drew it: uint8[64, 64, 3].

        It is drawn once a step, for drawing it again would change the future.
        """
        return {"image": self._running().picture}

    def picture(self) -> bytes:
        """`native`'s image."""
        return png(self.native()["image"])

    def state_key(self) -> str:
        """The world with its clock and its dice: only what is equal in all of them is equal."""
        return f"{self._running().key()}-{int(self._over)}"

    def snapshot(self) -> bytes:
        head = json.dumps({"over": self._over}).encode()
        return sealed(self._id, VERSION, head + b"\n" + self._running().dump())

    def restore(self, snapshot: bytes) -> None:
        """Only snapshots of one's own: they are pickles, which can run any code."""
        head, _, dump = opened(snapshot, self._id, VERSION).partition(b"\n")
        if self._env is None:
            self._env = Repeatable(seed=0)
        self._env.load(dump)
        self._over = json.loads(head)["over"]
        self._way.forget()

    def progress(self) -> float:
        """The share of the goals that is unlocked: of 22 in `full`, else 0 or 1."""
        return len(self._running().unlocked & self._goals) / len(self._goals)

    def oracle(self) -> list[Action]:
        """The scripted player's way from here; empty if it dies on all that it tries."""
        if Capability.ORACLE not in self.capabilities:
            self._undeclared(Capability.ORACLE)
        return [] if self._over else self._way.rest(self._found)

    def _found(self) -> list[str]:
        return [spoken(action) for action in solution(self._running().dump(), self.name)]

    def admissible(self) -> list[str]:
        """The actions that do something here; while asleep, none does more than to wait."""
        return [] if self._over else [spoken(name) for name in sensible(self._running())]

    def sample_action(self, dice: random.Random) -> Action:
        """Any of the 17, as the paper's random player does: not only those that do something."""
        return Action(dice.choice(list(WORDS)))

    @property
    def _id(self) -> str:
        return f"crafter/{self.name}"

    def _running(self) -> Repeatable:
        if self._env is None:
            raise InputError("This Crafter has no world yet; call reset with a task first.")
        return self._env


@functools.lru_cache(1024)  # the same few words again and again
def parse(text: str) -> str | None:
    """The action that `text` says in its first line, or None."""
    lines = text.strip().lower().splitlines()
    cleaned = " ".join(re.sub(r"[^a-z ]", "", lines[0].replace("_", " ")).split()) if lines else ""
    cleaned = ALIASES.get(cleaned, cleaned)
    return cleaned if cleaned in WORDS else None
