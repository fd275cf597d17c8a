"""Crafter, described in words: an open world of gathering, building, fighting and survival.

Ids: `crafter/full`, and one environment for each of the 22 achievements: `crafter/collect_wood`, …
Source: Hafner 2021 ("Benchmarking the Spectrum of Agent Capabilities"), the package `crafter`.

The world, its rules, its rewards (1 for a step with a new achievement, a tenth for each point of
health won or lost), its death (terminated) and its limit of 10,000 steps (truncated) are the
package's. Ours are the text and the goals: with a single achievement, unlocking it ends the episode
with success; `full` ends with success only after all 22.

The observation describes what the package's picture shows of the 9 x 7 cells around the player:
what is on its four sides, each creature, and of everything else the nearest (as in SmartPlay, Wu et
al. 2024) and the number in view, with the vital signs, the inventory, and new achievements.
`native()` has the picture itself. `world.py` makes the world deterministic; `expert.py` has the
oracle's player.
"""

from __future__ import annotations

import functools
import random
import re
from dataclasses import replace
from typing import Any

from crafter import constants

from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import Pictured, Sampling
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, refused, without_parameters
from palaestra.environments.families.crafter.expert import solution
from palaestra.environments.families.crafter.text import (
    as_words,
    describe,
    listed,
    recipes,
    sensible,
)
from palaestra.environments.families.crafter.world import VERSION, Repeatable, fresh
from palaestra.environments.shared.oracle_plan import OraclePlan
from palaestra.environments.shared.png_images import png

FULL = "full"
WORDS = {action.replace("_", " "): number for number, action in enumerate(constants.actions)}
ALIASES = {direction: f"move {direction}" for direction in ("left", "right", "up", "down")} | {
    "wait": "noop"
}

TURNS = {
    20: ("collect_wood",),
    40: ("collect_drink", "eat_cow", "make_wood_pickaxe", "make_wood_sword", "place_table"),
    60: ("collect_sapling", "collect_stone", "place_plant", "place_stone", "wake_up"),
    90: ("collect_coal", "defeat_skeleton", "make_stone_pickaxe", "make_stone_sword"),
    150: ("collect_iron", "place_furnace"),
    250: ("defeat_zombie", "make_iron_pickaxe", "make_iron_sword"),
    1000: ("collect_diamond", "eat_plant", FULL),
}
"""Typical actions: the scripted player's longest of twenty plans, plus a third."""


class Crafter(
    Adapter,
    Pictured,
    Sampling,
    id="crafter",
    capabilities={"state_key", "snapshot", "progress", "admissible", "picture"},
):
    """Crafter with one achievement, or all of them, as the goal."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._goals = frozenset(constants.achievements if name == FULL else [name])
        self._env: Repeatable | None = None
        self._plan = OraclePlan()

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the spec; `full` has no oracle: the scripted player rarely unlocks all 22."""
        spec = super().spec_of(name)
        has = spec.capabilities | ({Capability.ORACLE} if name != FULL else set())
        turns = next(turns for turns, names in TURNS.items() if name in names)
        return replace(spec, capabilities=has, typical_turns=turns)

    @classmethod
    def names(cls) -> list[str]:
        return [FULL, *constants.achievements]

    @property
    def instructions(self) -> str:
        if self.spec.name == FULL:
            goal = "Stay alive, and do each of these once: " + listed(constants.achievements)
        else:
            goal = "Goal: " + as_words(self.spec.name)
        rules = "; ".join(recipes(sorted(self._goals)))
        return (
            "You live in a world of grass, trees, water, stone and creatures. "
            f"{goal}.{f' Rules: {rules}.' if rules else ''} 'do' collects, drinks, eats or hits "
            f"what you face; (3) means 3 in view. Reply with one action: {', '.join(WORDS)}."
        )

    def _begin(self, task: Task) -> Observation:
        """Start the world of `task.seed`.

        Raises:
            InputError: the task has parameters; here a task is its seed.
        """
        without_parameters(task, "choose a goal by its name instead")
        if self._env is None:
            self._env = Repeatable(seed=task.seed)
        self._env.load(fresh(task.seed))
        self._plan.clear()
        return Observation(describe(self._env))

    def _act(self, action: Action) -> Transition:
        env = self._running()
        self._plan.record(action.text)
        word = parse(action.text)
        if word is None:
            return refused(f"You can only reply with one of these: {', '.join(WORDS)}.")
        before = set(env.unlocked)
        _, reward, done, info = env.step(WORDS[word])
        new = sorted(env.unlocked - before)
        dead, success = info["discount"] == 0, env.unlocked >= self._goals
        text = describe(env) + (" You died." if dead else "")
        return Transition(
            Observation(f"Achieved: {listed(new)}.\n{text}" if new else text),
            reward=float(reward),
            terminated=dead or success,
            truncated=bool(done) and not (dead or success),
            success=success,
            info={"unlocked": new} if new else {},
        )

    def close(self) -> None:
        self._env = None

    def native(self) -> dict[str, Any]:
        """Return the package's picture of the current state: uint8[64, 64, 3].

        It is drawn once per step, because drawing it again would change the future.
        """
        return {"image": self._running().picture}

    def picture(self) -> bytes:
        """Return `native`'s image as a PNG."""
        return png(self.native()["image"])

    def state_key(self) -> str:
        """Hash the world, its clock, and its random generator."""
        return f"{self._running().key()}-{int(self._over)}"

    def snapshot(self) -> bytes:
        return self._saved(self._running().dump(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot; trust only your own: it is a pickle, which can run any code."""
        dump = self._loaded(snapshot, VERSION)
        if self._env is None:
            self._env = Repeatable(seed=0)
        self._env.load(dump)
        self._plan.clear()

    def progress(self) -> float:
        """Return the share of the goals that is unlocked: of 22 in `full`, else 0 or 1."""
        return len(self._running().unlocked & self._goals) / len(self._goals)

    def oracle(self) -> list[Action]:
        """Return the scripted player's plan from here; empty if all its attempts fail."""
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        return [] if self._over else self._plan.remaining(self._found)

    def _found(self) -> list[str]:
        return [as_words(action) for action in solution(self._running().dump(), self.spec.name)]

    def admissible(self) -> list[str]:
        """List the actions that have an effect here; while asleep, only waiting."""
        return [] if self._over else [as_words(name) for name in sensible(self._running())]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample any of the 17 actions, like the paper's random player."""
        return Action(rng.choice(list(WORDS)))

    def _running(self) -> Repeatable:
        if self._env is None:
            raise InputError("This Crafter has no task yet; call reset with a task first.")
        return self._env


@functools.lru_cache(1024)  # a few texts repeat often
def parse(text: str) -> str | None:
    """Return the action in the first line of `text`, or None."""
    lines = text.strip().lower().splitlines()
    cleaned = " ".join(re.sub(r"[^a-z ]", "", lines[0].replace("_", " ")).split()) if lines else ""
    cleaned = ALIASES.get(cleaned, cleaned)
    return cleaned if cleaned in WORDS else None
