"""DiscoveryWorld's own game, without its pictures, files and shared dice.

The package draws its window twice for each observation (some seconds of work that only a model
that sees could use), writes pictures into the current folder, prints, throws Python's global dice,
and gives each object dice of its own that nobody seeds (the colours of mushrooms differ from load
to load). Here none of that happens, and dice without a seed get one from the game's own dice; what
acts, ticks, describes and scores is the package's own code.
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
    """Dice that are given a seed by the global ones where their maker gives none."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(random.getrandbits(64) if seed is None else seed)


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """While this lasts, all dice follow from the global ones."""
    usual = random.Random
    random.Random = Seeded  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        random.Random = usual  # type: ignore[misc]


class Game(DiscoveryWorldAPI):  # type: ignore[misc]
    """One scenario for one agent."""

    def __init__(self, scenario: str, difficulty: str, seed: int) -> None:
        self._dice = random.Random(seed).getstate()
        with self._apart():
            super().__init__()
            self._load(getInternalScenarioName(scenario, difficulty), seed)
        self.seen = self._look()

    def act(self, action: Mapping[str, Any]) -> None:
        """Do something, and let a step of the world's time pass, as the package's agents do."""
        with self._apart():
            self.performAgentAction(0, dict(action))
            self.tick()
        self.seen = self._look()

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The package's score card, which no agent may see."""
        return self.getTaskScorecard() or []

    @property
    def in_dialog(self) -> bool:
        return bool(self.isAgentInDialog(0))

    def _load(self, name: str, seed: int) -> None:
        """As `loadScenario`, without folders for pictures."""
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
        """What `getAgentObservation` gives as "ui"."""
        with self._apart():
            seen: dict[str, Any] = self.ui[0].renderJSON()
        return seen

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """With dice of this game's own, and without prints and notices."""
        outside = random.getstate()
        random.setstate(self._dice)
        try:
            with (
                seeded(),
                contextlib.redirect_stdout(io.StringIO()),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                yield
        finally:
            self._dice = random.getstate()
            random.setstate(outside)
