"""Feedback labels: failures are learned too, under a label that says that they are failures.

Source: feedback-aware fine-tuning (FAFT, Chen et al. 2024). The agent `labelled` acts under the
good label; here the prompts of bad attempts get the bad one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaestra.agents.labelled import BAD, GOOD
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, Text
from palaestra.core.model import Renderer
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.examples.rerendering import rerendered
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import Positive


@component(
    Kind.EXAMPLES,
    "feedback-labels",
    source="Chen et al. 2024 (FAFT)",
    status=Status.EXPERIMENTAL,
    when={Need.PROGRESS: reads_progress},
)
def feedback_labels(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    *,
    least: float = 1.0,
    weight: Positive = 1.0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Take all episodes, good and bad, the bad ones under a label that says so.

    Replies stay the recorded tokens; a good episode's rows are those of `filtered-cloning`.

    Args:
        episodes: of the agent `labelled`; those without a valid result are left out.
        policy: whose replies are imitated.
        renderer: of the policy; prompts of bad episodes are rendered again.
        least: lowest score of a good episode.
        weight: of each token of a bad episode; those of good ones weigh 1.
        score: success, reward, progress, or a function of the episode.

    Raises:
        InputError: an episode's prompts hold no label.
    """
    score = scoring(score)
    found: list[Example] = []
    for episode in usable(episodes, policy):
        if not any(_is_labelled(message) for call in episode.calls for message in call.messages):
            raise InputError(
                f"The prompts of episode {episode.key} hold no label; record it with the agent "
                "'labelled'."
            )
        if score(episode) >= least:
            found += [Example(row) for row in rows_of(episode, policy)]
        else:
            rows = rerendered(episode, policy, renderer, _as_bad)
            found += [Example(row, weight) for row in rows]
    return found


def _is_labelled(message: Message) -> bool:
    return message.role == "system" and message.text.endswith(GOOD)


def _as_bad(call: Call) -> list[Message]:
    """Return the new messages of a prompt, with the bad label in place of the good one."""
    return [_bad(message) if _is_labelled(message) else message for message in call.messages]


def _bad(message: Message) -> Message:
    *before, last = message.parts
    assert isinstance(last, Text)
    return replace(message, parts=(*before, Text(last.text.removesuffix(GOOD) + BAD)))
