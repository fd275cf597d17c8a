"""Scenario completion: the share of scenarios of which all variants are solved.

A scenario is a few tasks with the same goals, whose values, words and worlds differ; its number is
the parameter "scenario" of its tasks. After the scenario goal completion of AppWorld (Trivedi et
al. 2024): an agent that solves one variant by luck seldom solves all.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall
from palaestra.evaluation.statistics.intervals import Interval, mean_interval

SCENARIO = "scenario"


def scenario_completion(episodes: Sequence[Episode]) -> Interval | None:
    """Return the mean over scenarios; None where no task names its scenario.

    With repeats, each member counts by itself: all variants must be solved in the same one. A
    scenario without a valid result for each of its variants is left out; how many variants it has
    is known from the others.

    Raises:
        GroupTooSmall: fewer than two scenarios are whole.
    """
    tried: dict[tuple[object, ...], dict[int, dict[str, bool]]] = {}
    for episode in episodes:
        task = episode.task
        if SCENARIO in task.parameters and episode.outcome.scored:
            name = (task.environment, task.split, task.parameters[SCENARIO])
            members = tried.setdefault(name, {})
            members.setdefault(episode.key.member, {})[task.id] = episode.outcome.solved
    if not any(SCENARIO in episode.task.parameters for episode in episodes):
        return None
    variants = max((len(of) for members in tried.values() for of in members.values()), default=0)
    shares = []
    for members in tried.values():
        whole = [all(of.values()) for of in members.values() if len(of) == variants]
        if whole:
            shares.append(sum(whole) / len(whole))
    if len(shares) < 2:
        raise GroupTooSmall(
            f"{len(shares)} of {len(tried)} scenarios have a valid result for each of their "
            f"{variants} variants; evaluate more tasks."
        )
    return mean_interval(shares)
