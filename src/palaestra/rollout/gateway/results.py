"""Results of tool calls: matched by id, since several may come in any order.

The text that models read has no ids: there, results stand in the order of their calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaestra.rollout.gateway.conversation import Said
from palaestra.rollout.gateway.refusal import Refusal


def matched(messages: Sequence[Said]) -> Iterator[Said]:
    """A conversation, each reply's results in the order of its calls.

    Raises:
        Refusal: a result is of no call that waits for one, a call has two results or its id is
            another's too, or some calls of a reply have results and others have none.
    """
    waiting: dict[str, int] = {}  # calls of the last reply without a result, to their places
    done: set[str] = set()  # those of it that have one
    found: dict[int, Said] = {}  # results that came one after the other, by their calls' places
    for said in messages:
        if said.role == "tool":
            found[_place(said, waiting, done)] = said
            continue
        yield from _ordered(found, waiting)
        found.clear()
        yield said
        if said.calls:
            waiting = {call.id: place for place, call in enumerate(said.calls)}
            done.clear()
            if len(waiting) < len(said.calls):
                raise _refused("Two calls of one reply have the same id.")
    yield from _ordered(found, waiting)


def _place(said: Said, waiting: dict[str, int], done: set[str]) -> int:
    """Where among the calls the one is that a result is of; it waits no longer."""
    id = said.call_id
    if not id:
        raise _refused("A result of a tool does not say which call it is of.")
    if id in done:
        raise _refused(f"The call '{id}' has two results.")
    if id not in waiting:
        raise _refused(f"No call '{id}' waits for a result: it is none of the last reply's.")
    done.add(id)
    return waiting.pop(id)


def _ordered(found: dict[int, Said], waiting: dict[str, int]) -> list[Said]:
    if found and waiting:
        left = ", ".join(waiting)
        raise _refused(f"Send the results of all calls of a reply together; {left}: none came.")
    return [said for _, said in sorted(found.items())]


def _refused(reason: str) -> Refusal:
    return Refusal(400, reason, "invalid")
