"""Decisions: where the same history has several replies, and how each continuation ended.

Histories are compared token for token, so the tree of a search is found in its episodes, whatever
made them: a tree search (Zhai et al. 2024, AgentRM), several meta-plans for one task (MPO), or
samples of samples by several roles (MALT). A value is the mean score of the episodes that went
through a node: in a balanced tree, the mean of its children's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    group_of,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.examples.replies import history, replies, reply_row
from palaestra.learning.data.rows import Row
from palaestra.learning.methods.component import Kind, Need, Status, component


@dataclass(frozen=True, slots=True)
class Option:
    """One reply at a decision; equal replies are one option."""

    row: Row  # trains the reply after the decision's history
    scores: list[float]  # of the episodes that went through it

    @property
    def value(self) -> float:
        """Q of the action, or V of the state after it."""
        return fmean(self.scores)


@dataclass(frozen=True, slots=True)
class Decision:
    """One history and its options, in the order in which they were first taken."""

    group: str
    history: tuple[int, ...]
    options: tuple[Option, ...]

    @property
    def value(self) -> float:
        """V of the state: the mean over all episodes that reached it."""
        return fmean(score for option in self.options for score in option.scores)

    @property
    def best(self) -> Option:
        """The option of the highest value; the first of equals."""
        return max(self.options, key=lambda option: option.value)


def decisions(
    episodes: Sequence[Episode], policy: str, *, score: Score | str = "success"
) -> list[Decision]:
    """Return all decisions of `policy`, by first appearance; many have one option only."""
    score = scoring(score)
    found: dict[tuple[str, tuple[int, ...]], dict[tuple[int, ...], Option]] = {}
    for episode in usable(episodes, policy):
        graph, value = episode.graph, score(episode)
        for reply in replies(episode, policy):
            past = history(graph, reply.call)
            options = found.setdefault((group_of(episode), tuple(past)), {})
            option = options.get(reply.call.completion)
            if option is None:
                row = reply_row(episode.key, past, reply.call)
                options[reply.call.completion] = Option(row, [value])
            else:
                option.scores.append(value)
    return [
        Decision(group, past, tuple(options.values())) for (group, past), options in found.items()
    ]


def on_best_path(
    found: Sequence[Decision], episodes: Sequence[Episode], policy: str
) -> list[Decision]:
    """Return the decisions reached by always taking the best option (Zhai et al. 2024)."""
    known = {(decision.group, decision.history): decision for decision in found}
    met: set[tuple[str, tuple[int, ...]]] = set()
    for episode in usable(episodes, policy):
        graph = episode.graph
        for reply in replies(episode, policy):
            here = (group_of(episode), tuple(history(graph, reply.call)))
            met.add(here)
            if _reply_tokens(known[here].best.row) != _sampled(reply.call):
                break
    return [decision for decision in found if (decision.group, decision.history) in met]


@component(
    Kind.EXAMPLES,
    "thresholded",
    source="Motwani et al. 2024 (MALT), the supervised stage",
    status=Status.EXPERIMENTAL,
    needs=[Need.ATTEMPT],
    when={Need.PROGRESS: reads_progress},
)
def thresholded(
    episodes: Sequence[Episode],
    policy: str,
    *,
    theta: float = 0.5,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Take single replies whose value exceeds `theta`, each once.

    Args:
        episodes: the leaves of trees of samples; those without a valid result are left out.
        policy: whose replies are imitated; in MALT each role is a policy.
        theta: a value of exactly theta is not good enough (unverified).
    """
    return [
        Example(option.row)
        for decision in decisions(episodes, policy, score=score)
        for option in decision.options
        if option.value > theta
    ]


def _sampled(call: Call) -> tuple[int, ...]:
    return tuple(t for place, t in enumerate(call.completion) if place not in call.forced)


def _reply_tokens(row: Row) -> tuple[int, ...]:
    return tuple(token for token, on in zip(row.tokens, row.mask, strict=True) if on)
