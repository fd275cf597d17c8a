"""A team of simulated readers, what it must reach by formula, and what is measured of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palaestra.core.episode import Episode, together
from palaestra.environments.teams.team_file import TEMPLATES

Measure = Callable[[Episode], float]
Change = Callable[[str], str]


def solved(episode: Episode) -> float:
    """Return whether an episode was a success."""
    return float(episode.outcome.solved)


def right(*parts: str) -> Measure:
    """Return whether all these parts of an answer were right."""

    def measure(episode: Episode) -> float:
        return float(set(parts) <= set(episode.steps[-1].transition.info["right"]))

    return measure


def share(episode: Episode) -> float:
    """Return the share of an answer's parts that were right."""
    return episode.progress or 0.0


def replies(episode: Episode) -> float:
    """Return the number of replies."""
    return float(len(episode.steps))


def rounds(episode: Episode) -> int:
    """Return how many replies came one after the other; those at the same time count once."""
    before, count = None, 0
    for step in episode.steps:
        count += not together(before, step)
        before = step
    return count


def characters(episode: Episode) -> int:
    """Return the characters that models read and wrote, those of a conversation once."""
    read = sum(len(message.text) for call in episode.calls for message in call.messages)
    return read + sum(len(call.reply.text) for call in episode.calls)


@dataclass(frozen=True, slots=True)
class Case:
    """A team of readers, and what it must reach."""

    name: str
    environment: str
    expected: Sequence[tuple[str, Measure, float | None]]  # what is measured, and by formula
    model: str
    team: str = ""  # a template; empty: one agent alone
    roles: Mapping[str, str] = field(default_factory=dict)
    change: Change = str  # of the template's text

    def file(self, folder: Path) -> Path:
        """Write the team's file; return its path."""
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', self.name.lower())}.toml"
        path.write_text(self.change((TEMPLATES / f"{self.team}.toml").read_text()))
        return path
