"""Step masks: episodes that recovered from mistakes, learnt without the mistakes.

Source: STeP (Training LLM-Based Agents with Synthetic Self-Reflected Trajectories and Partial
Masking, 2025). Read in the abstract only: the exact mask is a proposal.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.episode import Episode
from palaestra.learning.data.examples.draft import without
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.examples.mistakes import Mistakes, MistakesName, finder
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component


@component(
    Kind.EXAMPLES,
    "step-masks",
    source="STeP, 2025",
    status=Status.EXPERIMENTAL,
    when={Need.PROGRESS: reads_progress},
)
def step_masks(
    episodes: Sequence[Episode],
    policy: str,
    *,
    least: float = 1.0,
    score: Score | ScoreName = "success",
    mistakes: Mistakes | MistakesName = "misunderstood",
) -> list[Example]:
    """Take episodes that ended well, without training on the mistakes in them.

    The thought and action of a mistaken step stay in the row as context and carry no loss;
    reflection, correction and right steps do.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are imitated.
        least: lowest score of an episode that is imitated.
        score: success, reward, progress, or a function of the episode.
        mistakes: misunderstood, futile, or a function that returns the mistaken calls.
    """
    score, mistakes = scoring(score), finder(mistakes)
    found: list[Example] = []
    for episode in usable(episodes, policy):
        if score(episode) < least:
            continue
        wrong = mistakes(episode, policy)
        rows = [without(row, wrong) for row in rows_of(episode, policy)]
        found += [Example(row) for row in rows if row is not None]
    return found
