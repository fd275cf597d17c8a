"""Know or need: tool calls are learned where they were needed, not where the policy did without.

Source: SMART (Qian et al. 2025): steps are labelled as the model's own knowledge or in need of a
tool, and a call that asks for what the model knows is not learned. There another model writes the
labels and a reason for each; here other attempts at the same task decide, and no reason is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from palaestra.core.episode import Episode
from palaestra.core.tool import Tool
from palaestra.learning.data.examples.draft import without
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    grouped,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.examples.mistakes import with_thoughts
from palaestra.learning.data.examples.replies import Reply, replies
from palaestra.learning.data.examples.tool_calls import calls_of, check_called
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component


class Knowledge(StrEnum):
    """Whether a tool call of a success was needed."""

    KNOWN = "known"  # another success of the same task did without that tool
    NEEDED = "needed"  # all successes of the task used it


@component(
    Kind.EXAMPLES,
    "needed-tools",
    source="Qian et al. 2025 (SMART)",
    status=Status.EXPERIMENTAL,
    needs=[Need.ATTEMPT],
    when={Need.PROGRESS: reads_progress},
)
def needed_tools(
    episodes: Sequence[Episode],
    policy: str,
    tools: Sequence[Tool],
    *,
    least: float = 1.0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Take successes, each tool call in them only where no other success did without that tool.

    Needless calls, and the thoughts before them, stay in the row as context and carry no loss.

    Args:
        episodes: groups of rollouts of an environment with tools; those without a valid result
            are left out.
        policy: whose replies are imitated.
        tools: of the environment.
        least: lowest score of a success.
        score: success, reward, progress, or a function of the episode.

    Raises:
        InputError: there are episodes, and no tool was called in them.
    """
    score = scoring(score)
    tried = usable(episodes, policy)
    check_called(tried, policy, tools)
    found: list[Example] = []
    for group in grouped(tried):
        good = [episode for episode in group if score(episode) >= least]
        for episode, labels in zip(good, labelled(good, policy, tools), strict=True):
            found += _examples(episode, policy, labels)
    return found


def _examples(episode: Episode, policy: str, labels: dict[int, Knowledge]) -> list[Example]:
    """Return the rows of an episode without the calls that were known, and their thoughts."""

    def known(reply: Reply) -> bool:
        return labels.get(reply.call.index) is Knowledge.KNOWN

    needless = with_thoughts(episode, policy, known)
    rows = [without(row, needless) for row in rows_of(episode, policy)]
    return [Example(row) for row in rows if row is not None]


def labelled(
    successes: Sequence[Episode], policy: str, tools: Sequence[Tool]
) -> list[dict[int, Knowledge]]:
    """Label each reply that called tools, by its index, in successes of one task.

    A reply with several calls is needed if one of them is.
    """
    made = [
        {
            reply.call.index: called
            for reply in replies(e, policy)
            if (called := _names(reply, tools))
        }
        for e in successes
    ]
    used = [set[str]().union(*calls.values()) for calls in made]
    needed = set.intersection(*used) if used else set()
    return [
        {
            index: Knowledge.NEEDED if called & needed else Knowledge.KNOWN
            for index, called in calls.items()
        }
        for calls in made
    ]


def _names(reply: Reply, tools: Sequence[Tool]) -> set[str]:
    return {call.name for call, _ in calls_of(reply, tools)}
