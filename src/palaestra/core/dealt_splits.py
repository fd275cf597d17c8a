"""Splits of a finite set of tasks in which no group of tasks is in two."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from palaestra.core.task import Split

DEALT = (Split.TEST, Split.VALIDATION, Split.TRAIN, Split.TRAIN, Split.TRAIN)
"""How groups of tasks are dealt out, one after another."""


def deal(groups: Mapping[int, Hashable]) -> Mapping[Split, list[int]]:
    """Deal out tasks such that no group is in two splits; single tasks, if groups are too few.

    Args:
        groups: the group of each task, by the task's number, in their order.
    """
    if len(set(groups.values())) < len(Split):
        groups = {number: number for number in groups}
    order = {group: at for at, group in enumerate(dict.fromkeys(groups.values()))}
    found: dict[Split, list[int]] = {}
    for number, group in groups.items():
        found.setdefault(DEALT[order[group] % len(DEALT)], []).append(number)
    return found
