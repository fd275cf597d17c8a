"""Rejection fine-tuning: successes only, each task and each solution a limited number of times.

Source: Yuan et al. 2023 (RFT); as the default update of Self-Challenging agents (Zhou et al.
2025) and between the two phases of RL in ComputerRL (Entropulse, Lai et al. 2025).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.rows import Row, rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Count


@component(
    Kind.EXAMPLES,
    "rejection",
    source="Yuan et al. 2023; Lai et al. 2025 (Entropulse)",
    status=Status.EXPERIMENTAL,
    when={Need.PROGRESS: reads_progress},
)
def rejection(
    episodes: Sequence[Episode],
    policy: str,
    *,
    cap: Count | None = None,
    least: float = 1.0,
    seed: int = 0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Sample distinct successes, at most `cap` of each task.

    Without a cap easy tasks dominate. Episodes may come from any phase and version of the policy
    (Entropulse gathers them over a whole phase). Their order does not matter. Episodes of one
    task whose rows are the same token for token count once.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        cap: most episodes of one task; None for all.
        least: lowest score of a success.
        seed: of the sampling.
        score: success, reward, progress, or a function of the episode.

    Raises:
        InputError: a cap below 1.
    """
    if cap is not None and cap < 1:
        raise InputError(f"cap = {cap} leaves no examples; give 1 or more.")
    score = scoring(score)
    tasks: dict[tuple[str, str], list[Episode]] = {}
    for episode in usable(episodes, policy):
        if score(episode) >= least:
            task = (episode.task.environment, episode.task.id)
            tasks.setdefault(task, []).append(episode)
    found: list[Example] = []
    for task in sorted(tasks):
        distinct = _distinct(tasks[task], policy)
        count = len(distinct) if cap is None else min(cap, len(distinct))
        sampled = random.Random(f"{seed}/{task}").sample(range(len(distinct)), count)
        found += [Example(row) for index in sorted(sampled) for row in distinct[index]]
    return found


def _distinct(episodes: Sequence[Episode], policy: str) -> list[list[Row]]:
    """Return the rows of each episode whose tokens are new, in the order of their keys."""
    found: dict[tuple[tuple[tuple[int, ...], tuple[bool, ...]], ...], list[Row]] = {}
    for episode in sorted(episodes, key=lambda e: (e.key.phase, e.key.group, e.key.member)):
        rows = rows_of(episode, policy)
        found.setdefault(tuple((tuple(row.tokens), tuple(row.mask)) for row in rows), rows)
    return list(found.values())
