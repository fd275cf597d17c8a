"""Conversations as chat JSONL, the form of supervised fine-tuning data on the Hugging Face Hub.

One line per conversation: a root-to-leaf branch of the message graph, which is also a
training row. Beside `messages` stand plain columns that tell whose it is and how it went;
tokens, log-probabilities and timing are not in this form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.core.message import Message
from palaestra.store.codec import JSON
from palaestra.store.exchange.parts import write_lines


def write_chat(path: Path, episodes: Iterable[Episode]) -> int:
    """Write the conversations of episodes; returns how many.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    return write_lines(path, (row for episode in episodes for row in conversations(episode)))


def conversations(episode: Episode) -> Iterator[dict[str, JSON]]:
    """The branches of an episode; of one without a model, what it saw and did."""
    if not episode.calls:
        if told := _lived(episode):
            yield _row(episode, 0, "agent", "", told)
        return
    graph = episode.graph
    for branch, leaf in enumerate(graph.leaves()):
        last: Call = graph.calls[leaf]
        yield _row(episode, branch, last.role, last.policy, list(graph.conversation(leaf)))


def _lived(episode: Episode) -> list[Message]:
    told = [] if episode.observation is None else [Message("user", episode.observation.text)]
    for step in episode.steps:
        told.append(Message("assistant", step.action.text))
        told.append(Message("user", step.transition.observation.text))
    return told[:-1] if episode.steps else []


def _row(
    episode: Episode, branch: int, role: str, policy: str, messages: list[Message]
) -> dict[str, JSON]:
    return {
        "messages": [{"role": one.role, "content": one.content} for one in messages],
        "episode": str(episode.key),
        "branch": branch,
        "role": role,
        "policy": policy,
        "environment": episode.task.environment,
        "task": episode.task.id,
        "split": str(episode.task.split),
        "agent": episode.agent,
        "outcome": str(episode.outcome),
        "solved": episode.outcome.solved,
        "reward": float(episode.reward) if episode.outcome.scored else None,
    }
