"""The message graph as a small tree: which calls continue a conversation, and where it branches.

A strand is a chain of calls in which each one is the only continuation of the one before it. Most
episodes are one strand; summaries, sub-agents and tree search make more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palaestra.store.ranges import CallFacts
from palaestra.viewer.texts import line

MOST = 200  # strands that are shown


@dataclass(frozen=True, slots=True)
class Strand:
    """An unbranched chain of calls."""

    first: int  # index of its first call
    last: int
    count: int
    depth: int  # how often the conversation had branched before it
    origin: int | None  # the call that it continues; None for a new conversation
    role: str
    policy: str


def strands(calls: Iterable[CallFacts]) -> list[Strand]:
    """Return the strands of an episode, parents before children, ordered by their first calls."""
    every = {call.call: call for call in calls}
    children: dict[int, int] = {}
    for call in every.values():
        if call.parent is not None:
            children[call.parent] = children.get(call.parent, 0) + 1
    strand_of: dict[int, int] = {}
    found: list[Strand] = []
    for index, call in every.items():
        parent = every.get(call.parent) if call.parent is not None else None
        continues = (
            parent is not None
            and children[parent.call] == 1
            and (parent.role, parent.policy) == (call.role, call.policy)
        )
        if parent is not None and continues:
            number = strand_of[parent.call]
            old = found[number]
            found[number] = Strand(
                old.first, index, old.count + 1, old.depth, old.origin, old.role, old.policy
            )
        else:
            depth = found[strand_of[parent.call]].depth + 1 if parent is not None else 0
            number = len(found)
            origin = None if parent is None else parent.call
            found.append(
                Strand(index, index, 1, depth, origin, line(call.role, 40), line(call.policy, 40))
            )
        strand_of[index] = number
    return found
