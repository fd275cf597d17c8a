"""Traces of a search as plain episodes: the replies whose actions were taken, in one conversation.

Source: O1 Replication Journey, Part 2 (Huang et al. 2024), which imitates what a searcher found,
without its search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.learning.data.examples.retokenizing import renumbered


def without_search(episode: Episode) -> Episode:
    """Leave out all calls but those that chose an action, and those whose conversation it ended.

    What remains stays token for token as it was recorded. Of equal replies to one prompt, the
    conversation may go on from another one than the one that acted; that one stands for both.
    """
    kept = _with_ancestors(episode.calls, [step.call for step in episode.steps])
    goes_on = {episode.calls[index].parent for index in kept}
    twins: dict[int, int] = {}
    for index in kept - goes_on:
        one = episode.calls[index]
        for other in kept & goes_on:
            two = episode.calls[other]
            if (two.parent, two.reply) == (one.parent, one.reply):
                twins[index] = other
    kept -= twins.keys()
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
    steps = tuple(
        renumbered(replace(step, call=twins.get(step.call, step.call)), places)
        if step.call is not None
        else renumbered(step, places)
        for step in episode.steps
    )
    return replace(episode, calls=calls, steps=steps)


def _with_ancestors(calls: Sequence[Call], indices: Iterable[int | None]) -> set[int]:
    found: set[int] = set()
    for index in indices:
        while index is not None and index not in found:
            found.add(index)
            index = calls[index].parent
    return found
