"""Windows: when a task's changes must be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra.environments.families.apps.world import World


@dataclass(frozen=True, slots=True)
class Window:
    """Every change that the agent makes in an app must lie between two seconds."""

    app: str
    earliest: int = 0
    latest: int | None = None  # None: there is no deadline
    since: str = ""  # the event from whose first time the seconds count; empty: from the beginning
    arguments: Mapping[str, Any] = field(default_factory=dict)  # only calls with these count

    def met(self, world: World) -> bool:
        """Return whether all such calls lie in it; without one, whether there is still time."""
        origin = 0
        if self.since:
            happened = world.schedule.seconds_of(self.since)
            if not happened:
                return not self._made(world)
            origin = happened[0]
        made = self._made(world)
        latest = float("inf") if self.latest is None else origin + self.latest
        if not made:
            return world.seconds <= latest
        return all(origin + self.earliest <= second <= latest for second in made)

    def _made(self, world: World) -> list[int]:
        """Return when the changes were made, in seconds of the world's clock."""
        return [
            one.second
            for one in world.changing_calls()
            if one.api.startswith(f"{self.app}.")
            and self.arguments.items() <= dict(one.arguments).items()
        ]
