"""Replies: a policy's calls, the actions they chose, and the environment state of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import InputError
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.model import is_of
from palaestra.learning.data.examples.draft import Draft
from palaestra.learning.data.rows import Row, refuse_images


@dataclass(frozen=True, slots=True)
class Reply:
    """One call of the policy."""

    call: Call
    steps: tuple[Step, ...]  # the actions that it chose; empty for a thought before an action
    state: str | None  # key of the state it replied in; None if unknown
    opens: bool  # the first one since the policy last acted


def replies(episode: Episode, policy: str) -> list[Reply]:
    """Return the replies of `policy`, in order.

    The state of a reply that chose no action is that of the next one that did.
    """
    chosen: dict[int, list[Step]] = {}
    for step in episode.steps:
        if step.call is not None:
            chosen.setdefault(step.call, []).append(step)
    calls = [call for call in episode.calls if is_of(call.policy, policy)]
    states: list[str | None] = []
    following: str | None = None
    for call in reversed(calls):
        if call.index in chosen:
            following = chosen[call.index][0].before.state_key
        states.append(following)
    found: list[Reply] = []
    for call, state in zip(calls, reversed(states), strict=True):
        opens = not found or bool(found[-1].steps)
        found.append(Reply(call, tuple(chosen.get(call.index, ())), state, opens))
    return found


def conversation(episode: Episode, policy: str) -> list[Reply]:
    """Return the replies of a policy whose prompts only grow: each call continues the last one.

    Raises:
        InputError: they do not only grow, so parts of the episode cannot be cut and joined.
    """
    found = replies(episode, policy)
    before: int | None = None
    for reply in found:
        if reply.call.parent != before:
            raise InputError(
                f"Call {reply.call.index} of episode {episode.key} does not continue the reply of "
                f"'{policy}' before it, so the episode cannot be cut and joined; use an agent "
                "whose prompts only grow."
            )
        before = reply.call.index
    return found


def history(graph: MessageGraph, call: Call) -> list[int]:
    """Return all tokens before the completion of `call`.

    Raises:
        InputError: there are images among them.
    """
    refuse_images(graph.images(call.index), "Learning from single replies")
    tokens = graph.tokens(call.index)
    return tokens[: len(tokens) - len(call.completion)]


def reply_row(key: Key, past: Sequence[int], call: Call) -> Row:
    """Return the row that trains one reply after `past`, which may be another episode's.

    Raises:
        ValueError: the reply has no token ids (its model has no renderer).
    """
    draft = Draft(key)
    draft.add_context(past)
    draft.add_reply(call)
    row = draft.row()
    if row is None:
        raise ValueError(f"{key}: call {call.index} holds no token ids")
    return row
