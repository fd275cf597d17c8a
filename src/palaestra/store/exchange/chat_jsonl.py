"""Conversations as chat JSONL, the form of supervised fine-tuning data on the Hugging Face Hub.

One line per conversation: a root-to-leaf branch of the message graph, which is also a
training row. Plain columns beside `messages` give its episode and outcome, which are those of the
player whose conversation it is where there are several; tokens, log-probabilities and timing are
not in this format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from palaestra.core.episode import Episode, player_of
from palaestra.core.graph import Call
from palaestra.core.message import Message, assistant, user
from palaestra.store.codec import JSON
from palaestra.store.exchange.messages import chat
from palaestra.store.exchange.plain_json import write_lines


def write_chat(path: Path, episodes: Iterable[Episode]) -> int:
    """Write the conversations of episodes; return their number.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    return write_lines(path, (row for episode in episodes for row in conversations(episode)))


def conversations(episode: Episode) -> Iterator[dict[str, JSON]]:
    """Yield the branches of an episode; without model calls, its observations and actions."""
    if not episode.calls:
        if messages := _observed(episode):
            yield _row(episode, 0, "agent", "", messages)
        return
    graph = episode.graph
    for branch, leaf in enumerate(graph.leaves()):
        last: Call = graph.calls[leaf]
        yield _row(episode, branch, last.role, last.policy, list(graph.conversation(leaf)))


def _observed(episode: Episode) -> list[Message]:
    messages = [] if episode.observation is None else [user(episode.observation.text)]
    for step in episode.steps:
        messages.append(assistant(step.action.text))
        messages.append(user(step.transition.observation.text))
    return messages[:-1] if episode.steps else []


def _row(
    episode: Episode, branch: int, role: str, policy: str, messages: list[Message]
) -> dict[str, JSON]:
    player = player_of(role)
    own = episode.players.get(player)
    outcome = episode.outcome if own is None else own.outcome
    reward = episode.reward if own is None else own.total
    return {
        "messages": [chat(one) for one in messages],
        "episode": str(episode.key),
        "branch": branch,
        "role": role,
        "policy": policy,
        "environment": episode.task.environment,
        "task": episode.task.id,
        "split": str(episode.task.split),
        "agent": episode.agent,
        **({} if own is None else {"player": player}),
        "outcome": str(outcome),
        "solved": outcome.solved,
        "reward": float(reward) if episode.outcome.scored else None,
    }
