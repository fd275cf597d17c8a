"""Traces of a search as plain episodes: the replies whose actions were taken, in one conversation.

Source: O1 Replication Journey, Part 2 (Huang et al. 2024), which imitates what a searcher found,
without its search.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.core.episode import Episode
from palaestra.learning.data.examples.retokenizing import renumbered


def without_search(episode: Episode) -> Episode:
    """Leave out all calls but those that chose an action, and those whose conversation it ended.

    What remains stays token for token as it was recorded.
    """
    kept: set[int] = set()
    for step in episode.steps:
        index = step.call
        while index is not None and index not in kept:
            kept.add(index)
            index = episode.calls[index].parent
    places = {index: place for place, index in enumerate(sorted(kept))}
    calls = tuple(
        replace(
            call,
            index=places[call.index],
            parent=None if call.parent is None else places[call.parent],
        )
        for call in episode.calls
        if call.index in kept
    )
    steps = tuple(renumbered(step, places) for step in episode.steps)
    return replace(episode, calls=calls, steps=steps)
