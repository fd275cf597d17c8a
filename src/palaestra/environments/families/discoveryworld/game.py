"""DiscoveryWorld's own game, without its pictures, files and shared random generators.

The package draws its window twice for each observation (seconds of work that only a vision model
could use), writes pictures into the current folder, prints, samples from Python's global generator,
and gives each object an unseeded generator (the colours of mushrooms differ between loads). Here
none of that happens, and a generator without a seed is seeded from the game's own generator. The
package's own code acts, ticks, describes and scores.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

from discoveryworld.DiscoveryWorldAPI import DiscoveryWorldAPI
from discoveryworld.ScenarioMaker import ScenarioMaker, getInternalScenarioName
from discoveryworld.UserInterface import UserInterface
from discoveryworld.World import World


class Seeded(random.Random):
    """A random generator that is seeded from the global one if no seed is given."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(random.getrandbits(64) if seed is None else seed)


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Derive all new random generators from the global one while the context is active."""
    usual = random.Random
    random.Random = Seeded  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        random.Random = usual  # type: ignore[misc]


class Game(DiscoveryWorldAPI):  # type: ignore[misc]
    """One scenario for one agent."""

    def __init__(self, scenario: str, difficulty: str, seed: int) -> None:
        self._rng_state = random.Random(seed).getstate()
        with self._apart():
            super().__init__()
            self._load(getInternalScenarioName(scenario, difficulty), seed)
        self.seen = self._look()

    def act(self, action: Mapping[str, Any]) -> None:
        """Do an action and advance the time by one step, like the package's agents."""
        with self._apart():
            self.performAgentAction(0, dict(action))
            self.tick()
        self.seen = self._look()

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The package's score card, which the agent must not see."""
        return self.getTaskScorecard() or []

    @property
    def in_dialog(self) -> bool:
        return bool(self.isAgentInDialog(0))

    def _load(self, name: str, seed: int) -> None:
        """Load a scenario like `loadScenario`, without folders for pictures."""
        self.world = World(
            assetPath=None,
            filenameSpriteIndex="spriteIndex.json",
            dataPath=None,
            filenameObjectData="objects.tsv",
            filenameMaterialData="materials.tsv",
            filenameDiscoveryFeed="discoveryFeed.json",
        )
        done, error = ScenarioMaker(world=self.world, seed=seed).setupScenario(name, 1)
        if not done:
            raise RuntimeError(f"DiscoveryWorld cannot set up '{name}': {error}")
        for agent in self.world.getUserAgents():
            interface = UserInterface(self.window, self.world.spriteLibrary)
            interface.setAgent(agent)
            self.ui.append(interface)
        self.numUserAgents = len(self.ui)
        self.world.tick()

    def _look(self) -> dict[str, Any]:
        """Return the "ui" part of `getAgentObservation`."""
        with self._apart():
            seen: dict[str, Any] = self.ui[0].renderJSON()
        return seen

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Use this game's own random state, and suppress output and warnings."""
        outside = random.getstate()
        random.setstate(self._rng_state)
        try:
            with (
                seeded(),
                contextlib.redirect_stdout(io.StringIO()),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                yield
        finally:
            self._rng_state = random.getstate()
            random.setstate(outside)
