"""Finished attempts at a task, and their stories: what was seen, done, and seen after it."""

from __future__ import annotations

import re
from typing import NamedTuple

from palaestra.core.episode import Episode

SEEN = 1500  # characters of an observation after the first one


class Attempt(NamedTuple):
    """One finished attempt."""

    solved: bool
    story: str
    wrote: bool  # whether a function was asked for at its beginning


def story_of(episode: Episode) -> str:
    """Return the first observation, and the valid actions with what followed them."""
    assert episode.observation is not None
    lines = [episode.observation.text]
    for step in episode.steps:
        if step.transition.valid:
            action = " ".join(step.action.text.split("\n"))
            lines.append(f"> {action}\n{step.transition.observation.text[:SEEN]}")
    return "\n".join(lines)


def read_story(story: str) -> tuple[str, list[str]]:
    """Return the first observation of an attempt's story, and its actions."""
    first, *steps = re.split(r"^> ", story, flags=re.MULTILINE)
    return first.removesuffix("\n"), [step.partition("\n")[0] for step in steps]
