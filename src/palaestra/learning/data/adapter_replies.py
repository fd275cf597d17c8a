"""Which adapter learns each reply: replies of adapters that do not learn become context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from palaestra.core.episode import Episode
from palaestra.core.graph import Call
from palaestra.core.model import CONTEXT, adapted, adapter_role, is_of, without_adapter
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork

Choice = Callable[[Call], str | None]
"""The adapter that is chosen for a prompt; None: that of the call's role."""


def rechosen(episodes: Sequence[Episode], speaker: str, choice: Choice) -> list[Episode]:
    """Return episodes as if an adapter had been chosen for each reply of a speaker.

    Args:
        episodes: recorded by any adapter of the speaker, or by none.
        speaker: the policy's name, or that of a demonstrator.
        choice: of each reply.
    """

    def named(call: Call) -> str:
        chosen = choice(call)
        return speaker if chosen is None else adapted(speaker, chosen)

    return [_renamed(episode, speaker, named) for episode in episodes]


def learned_by(
    episodes: Sequence[Episode],
    speaker: str,
    network: DecoderNetwork,
    trained: Collection[str],
) -> list[Episode]:
    """Return episodes in which only replies of trained adapters are those of the speaker.

    All others are context: no row trains them, and credit does not count them as turns.

    Args:
        episodes: in which the speaker replies.
        speaker: the policy's name, or that of a demonstrator.
        network: knows the adapter of each role.
        trained: names of adapters in the network.
    """
    by_role = {} if network.adapters is None else network.adapters.by_role
    if set(by_role.values()) <= set(trained):  # all learn, or there are none
        return list(episodes)

    def named(call: Call) -> str:
        own = by_role.get(adapter_role(call.policy, call.role), OWN)
        return call.policy if own in trained else without_adapter(call.policy) + CONTEXT

    return [_renamed(episode, speaker, named) for episode in episodes]


def speaking(episodes: Sequence[Episode], speaker: str) -> list[str]:
    """Return the roles under whose adapters a speaker replied, by first appearance."""
    found = (
        adapter_role(call.policy, call.role)
        for episode in episodes
        for call in episode.calls
        if is_of(call.policy, speaker)
    )
    return list(dict.fromkeys(found))


def _renamed(episode: Episode, speaker: str, named: Callable[[Call], str]) -> Episode:
    calls = tuple(
        replace(call, policy=named(call)) if is_of(call.policy, speaker) else call
        for call in episode.calls
    )
    return replace(episode, calls=calls)
