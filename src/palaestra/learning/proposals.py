"""Proposals: which call said the action that was done.

`Step.call` is the last call before the step. Where an agent tries actions before it acts (see
`core/trial.py`) or asks several times for one, that call may be a rejected sibling, a reply in a
branch that was only tried, or a judge. What was done then is what was said after the conversation
of all that was done before.
"""

from __future__ import annotations

from palaestra.core.episode import Episode, Step
from palaestra.core.graph import Call
from palaestra.core.message import Message, user


def proposals(episode: Episode) -> tuple[int | None, ...]:
    """Of each step, the index of the call that proposed its action; None if no model did.

    Of several that said the same at that point, the first: its words are those that went on. From
    a step on that no call proposed in such a conversation, `Step.call` is all that is known.
    """
    last = tuple(step.call for step in episode.steps)
    if not episode.calls or not (episode.usage.tried or _asked_twice(episode)):
        return last
    asked = _by_prompt(episode)
    graph, first = episode.graph, episode.calls[0]
    done = tuple(graph.conversation(first.index)[:-1])
    found: list[int] = []
    for step in episode.steps:
        before = -1 if step.call is None else step.call
        meant = next((c for c in asked.get(done, ()) if c.index <= before and _says(c, step)), None)
        if meant is None:
            break
        found.append(meant.index)
        done = (*done, meant.reply, user(step.transition.observation.text))
    return (*found, *last[len(found) :])


def _asked_twice(episode: Episode) -> bool:
    """Whether two calls were asked the same."""
    asked = {(call.parent, call.role, call.messages) for call in episode.calls}
    return len(asked) < len(episode.calls)


def _says(call: Call, step: Step) -> bool:
    return call.reply.content.strip() == step.action.text


def _by_prompt(episode: Episode) -> dict[tuple[Message, ...], list[Call]]:
    """The calls of the role that was asked first, by all that they were asked with."""
    graph, role = episode.graph, episode.calls[0].role
    found: dict[tuple[Message, ...], list[Call]] = {}
    for call in episode.calls:
        if call.role == role:
            found.setdefault(tuple(graph.conversation(call.index)[:-1]), []).append(call)
    return found
