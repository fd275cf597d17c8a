"""Results of tool calls, matched by id and put in the order of their calls.

Programs may send results in any order, but the text that some models read has no ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from palaestra.core.message import Message, ToolResult
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.program_requests import Received


def matched(messages: Sequence[Received]) -> Iterator[Received]:
    """Yield a conversation, with each reply's results in the order of its calls and with names.

    Raises:
        HTTPError: a result belongs to no pending call, a call has two results, two calls share an
            id, or only some calls of a reply have results.
    """
    pending: dict[str, int] = {}  # pending calls of the last reply, to their indices
    done: set[str] = set()  # calls of the last reply that have a result
    names: tuple[str, ...] = ()  # the tools of these calls
    found: dict[int, Received] = {}  # adjacent results, by the indices of their calls
    for received in messages:
        if received.message.role == "tool":
            index = _index_of(received.message.tool_results[0].id, pending, done)
            found[index] = Received(_named(received.message, names[index]))
            continue
        yield from _ordered(found, pending)
        found.clear()
        yield received
        if calls := received.message.tool_calls:
            pending = {call.id: index for index, call in enumerate(calls)}
            names = tuple(call.name for call in calls)
            done.clear()
            if len(pending) < len(calls):
                raise _invalid("Two calls of one reply have the same id.")
    yield from _ordered(found, pending)


def _index_of(id: str, pending: dict[str, int], done: set[str]) -> int:
    """Return the index of a pending call, and remove it from the pending ones."""
    if not id:
        raise _invalid("A tool result has no call id; send the id of its call.")
    if id in done:
        raise _invalid(f"The call '{id}' has two results.")
    if id not in pending:
        raise _invalid(f"The result of '{id}' belongs to no pending call of the last reply.")
    done.add(id)
    return pending.pop(id)


def _named(message: Message, name: str) -> Message:
    """Return a tool message with the tool's name in its result."""
    named = (replace(p, name=name) if isinstance(p, ToolResult) else p for p in message.parts)
    return replace(message, parts=tuple(named))


def _ordered(found: dict[int, Received], pending: dict[str, int]) -> list[Received]:
    if found and pending:
        left = ", ".join(pending)
        raise _invalid(
            f"The calls {left} have no result; send the results of all calls of a reply together."
        )
    return [found[index] for index in sorted(found)]


def _invalid(reason: str) -> HTTPError:
    return HTTPError(400, reason, "invalid")
