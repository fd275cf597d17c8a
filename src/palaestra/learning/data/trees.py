"""Trees of samples: rollouts of a task that share the beginnings of their episodes.

A rollout that branched off another one records which member of the group sampled each reply that
it begins with (`Call.shared_by`). Such a reply is one node of the tree, whatever number of
rollouts goes through it, and is trained once: where it was sampled (see `rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.episode import Episode, Key
from palaestra.learning.data.trajectory import Trajectory


def with_parents(batch: Sequence[Trajectory], episodes: Sequence[Episode]) -> list[Trajectory]:
    """Return the trajectories with the node that each of their turns made or went through.

    Args:
        batch: rollouts.
        episodes: at least theirs.
    """
    owners: dict[tuple[Key, int], int] = {
        (episode.key, call.index): call.shared_by
        for episode in episodes
        for call in episode.calls
        if call.shared_by is not None
    }
    return [
        replace(
            t,
            parents=tuple(
                f"{owners.get((t.key, turn.call), t.key.member)}.{turn.call}" for turn in t.turns
            ),
        )
        for t in batch
    ]


def branches(episodes: Sequence[Episode]) -> bool:
    """Return whether some episode shares its beginning with another one."""
    return any(call.shared_by is not None for e in episodes for call in e.calls)


def own_tokens(episode: Episode) -> tuple[int, int]:
    """Return how many tokens an episode read and sampled, without those that it shares."""
    shared = [call for call in episode.calls if call.shared_by is not None]
    read = sum(len(call.prompt) or call.computed_tokens for call in shared)
    sampled = sum(call.sampled for call in shared)
    return episode.usage.prompt_tokens - read, episode.usage.sampled_tokens - sampled
