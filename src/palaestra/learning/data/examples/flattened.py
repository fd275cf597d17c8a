"""Flattened team runs: what several roles said becomes one policy's trajectory, in tags.

Source: Chain-of-Agents (Li et al. 2025): runs of a multi-agent system are distilled into
trajectories of one model, which speaks for all roles; the agent `chain` acts with it. The tags
here are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaestra.agents.chain_of_agents import opening, team_reply
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Renderer, is_of
from palaestra.learning.data.examples.conversations import conversation_example
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.methods.component import Kind, Need, Status, component

AGENT = "agent"  # the role of calls that name none


@component(
    Kind.EXAMPLES,
    "flattened",
    source="Li et al. 2025 (Chain-of-Agents)",
    status=Status.EXPERIMENTAL,
    needs=[Need.ROLES],
    when={Need.PROGRESS: reads_progress},
)
def flattened(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    instructions: str,
    *,
    least: float = 1.0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Join the replies of a team's roles, up to each action, to one reply of the agent `chain`.

    The paper keeps the runs whose answer was right. Its model also masks what tools returned, as
    observations are here.

    Args:
        episodes: of an agent with several roles; those without a valid result are left out.
        policy: who speaks in all roles.
        renderer: of the policy that learns; rows hold tokens that no model sampled.
        instructions: of the environment.
        least: lowest score of an episode that is imitated.
        score: success, reward, progress, or a function of the episode.

    Raises:
        InputError: there are episodes, and the role "agent" speaks alone in them.
    """
    score = scoring(score)
    usual = usable(episodes, policy)
    if usual and all(roles_of(episode, policy) == {AGENT} for episode in usual):
        raise InputError(
            f"In all {len(usual)} episodes the role '{AGENT}' speaks alone, so that there is no "
            "team to flatten; record them with an agent that has other roles, such as plan."
        )
    return [
        conversation_example(
            list(_conversation(episode, policy, instructions)), renderer, episode.key
        )
        for episode in usual
        if score(episode) >= least and episode.steps
    ]


def roles_of(episode: Episode, policy: str) -> set[str]:
    """Return the roles in which the policy speaks."""
    return {call.role for call in episode.calls if is_of(call.policy, policy)}


def _conversation(episode: Episode, policy: str, instructions: str) -> Iterator[Message]:
    """Yield the messages of the agent `chain` that does the same, up to its last reply."""
    yield system(opening(instructions))
    seen = episode.observation.text if episode.observation else ""
    spoken = 0
    for step in episode.steps:
        yield user(seen)
        calls = episode.calls[spoken : step.calls_before]
        spoken = step.calls_before
        action = step.action.text.strip()
        said = [
            (call.role, call.reply.text)
            for call in calls
            if is_of(call.policy, policy) and not _only_acts(call, step.call, action)
        ]
        yield assistant(team_reply(said, action))
        seen = step.transition.observation.text


def _only_acts(call: Call, acting: int | None, action: str) -> bool:
    """Return whether a reply is its action, word for word."""
    return call.index == acting and call.reply.text.strip() == action
