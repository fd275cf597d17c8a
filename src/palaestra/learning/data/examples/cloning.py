"""Cloning: whole episodes as examples, the better ones only or more than the others.

Source: behaviour cloning (Pomerleau 1989), filtered by return as in PAE (Zhou et al. 2024) and
LMRL-Gym (Abdulhai et al. 2023), and weighted by return as in AgentEvol (Xi et al. 2024).
"""

from __future__ import annotations

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
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import SomeShare


@component(
    Kind.EXAMPLES,
    "filtered-cloning",
    source="Zhou et al. 2024, as released in PAE; Abdulhai et al. 2023 (LMRL-Gym)",
    status=Status.RELEASE,
    when={Need.PROGRESS: reads_progress},
)
def filtered_cloning(
    episodes: Sequence[Episode],
    policy: str,
    *,
    least: float = 1.0,
    share: SomeShare = 1.0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Take all replies of the episodes that score at least `least`, or of the best share of these.

    PAE keeps solved episodes (`least` 1); filtered behaviour cloning in LMRL-Gym keeps those of
    the highest return (`share` below 1, `least` as low as returns go; its share is not verified).

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        least: lowest score kept, in units of `score`.
        share: of these episodes, in (0, 1]; ties with the last one kept are kept too.
        score: success, reward, progress, or a function of the episode.

    Raises:
        InputError: `share` outside (0, 1].
    """
    if not 0 < share <= 1:
        raise InputError(f"share = {share:g} is not in (0, 1]; give one in (0, 1].")
    score = scoring(score)
    good = [(score(e), e) for e in usable(episodes, policy) if score(e) >= least]
    if not good:
        return []
    count = max(1, round(share * len(good)))
    border = sorted((value for value, _ in good), reverse=True)[count - 1]
    return [Example(row) for value, e in good if value >= border for row in rows_of(e, policy)]


@component(
    Kind.EXAMPLES,
    "reward-weighted",
    source="Xi et al. 2024 (AgentEvol)",
    status=Status.EXPERIMENTAL,
    when={Need.PROGRESS: reads_progress},
)
def reward_weighted(
    episodes: Sequence[Episode], policy: str, *, score: Score | ScoreName = "reward"
) -> list[Example]:
    """Take all replies of the episodes, each weighing as much as its episode scored.

    The learning step of AgentEvol: `- sum R(episode) * lp`, over what was explored and the
    demonstrations that the base was cloned from. Each round starts from that base again. The
    release keeps only rewards above 0.99 and weighs them equally: `filtered-cloning` with
    `least` 0.99 and `score` reward.

    Args:
        episodes: of any tasks; those without a valid result or with score 0 are left out.
        policy: whose replies are imitated.
        score: success, reward, progress, or a function of the episode; not negative.

    Raises:
        InputError: a negative score, which would make replies unlikelier without bound.
    """
    score = scoring(score)
    found: list[Example] = []
    for episode in usable(episodes, policy):
        weight = score(episode)
        if weight < 0:
            raise InputError(
                f"Episode {episode.key} scores {weight:g}, but imitation needs weights of at least "
                "0; give a score that is never negative, such as the success."
            )
        if weight:
            found += [Example(row, weight) for row in rows_of(episode, policy)]
    return found
