"""Episodes with the actions that a stage has named, in place of those that nobody may read.

So every rule of examples can learn from trajectories without actions (Zheng et al. 2023, SS-ORL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaestra.core.episode import Episode
from palaestra.learning.data.examples.action_free import with_labels
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made

LABELS = "labels/"  # documents: which episodes a stage learned from, and the actions of the others


def with_proxy_labels(
    context: RunContext, made: Made, stage: str, episodes: Sequence[Episode], speaker: str
) -> list[Episode]:
    """Return the episodes with the actions that a stage named; without those that it left out.

    Args:
        context: of the run.
        made: what earlier stages have made.
        stage: the one that labels.
        episodes: as recorded.
        speaker: who replies in them.
    """
    document: dict[str, Any] = dict(context.store.get(LABELS + made.labels[stage][-1]) or {})
    given, found = set(document["given"]), []
    for episode in episodes:
        key = str(episode.key)
        if key in given:
            found.append(episode)
        elif key in document["labels"]:
            labels = {int(call): action for call, action in document["labels"][key].items()}
            phrase, renderer = context.agent.phrase, context.policy.renderer
            found.append(with_labels(episode, speaker, labels, phrase, renderer))
    return found
