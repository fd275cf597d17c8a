"""The replies of one session, recognised in the messages that its program sends back.

A program sends its whole history with each request. Each reply of this session in it is replaced by
the recorded one, exactly and with all its parts, even if the program changed its whitespace, its
reasoning or the JSON of its calls. Hence an append-only history extends the recorded tokens, and an
edited one begins a new branch.

A reply is recognised by its ids: those of its calls, and those of its items (Responses). A reply of
text only, which the other protocols send back without an id, is recognised by its text, and by the
signature of its reasoning if that is sent back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestra.core.environment import Action
from palaestra.core.graph import MessageGraph
from palaestra.core.message import Message, ToolCall
from palaestra.core.model import Generation
from palaestra.core.tool import ACT
from palaestra.gateway.program_requests import Answer, Received


def item_ids(number: int) -> tuple[str, str]:
    """Return the ids of a reply's message and of its reasoning in the Responses protocol."""
    return f"msg_{number}", f"rs_{number}"


@dataclass(slots=True)
class ReplyHistory:
    """The replies of this session."""

    graph: MessageGraph
    _answers: list[Answer] = field(default_factory=list)
    _by_id: dict[str, list[Answer]] = field(default_factory=dict)
    _by_text: dict[str, list[Answer]] = field(default_factory=dict)  # replies without calls
    _done: set[str] = field(default_factory=set)  # ids of the calls that were executed

    def add(self, answer: Answer) -> None:
        """Record a reply as the program received it."""
        self._answers.append(answer)
        for id in (*item_ids(answer.number), *(call.id for call in answer.tool_calls)):
            self._by_id.setdefault(id, []).append(answer)
        if not answer.tool_calls:
            self._by_text.setdefault(answer.text.strip(), []).append(answer)

    def recorded(self, received: Received, before: Sequence[Message]) -> Message | None:
        """Return the recorded reply for a message that follows `before`; None if there is none."""
        message = received.message
        ids = (*received.ids, *(call.id for call in message.tool_calls))
        found = next((self._by_id[id] for id in ids if id in self._by_id), None)
        if found is None and not message.tool_calls:
            found = self._by_text.get(message.text.strip())
        same = [answer for answer in found or () if _is(answer, message)]
        if not same:
            return None
        best = same[0]
        if len(same) > 1:
            best = max(same, key=lambda answer: self._similarity(answer, message, before))
        assert best.index is not None
        return self.graph.calls[best.index].reply

    def proposer(self, action: Action, call_id: str | None = None) -> Generation | None:
        """Return the reply that proposed an action; None before the first reply.

        If the program gives the id of the model's call, that identifies the reply. Else it is the
        latest reply with an equal call that was not executed yet, else the latest with the same
        text, else the latest reply.
        """
        if call_id is not None and call_id in self._by_id:
            self._done.add(call_id)
            return self._by_id[call_id][-1].generation
        by_text: Answer | None = None
        for answer in reversed(self._answers):
            called = next((call for call in answer.tool_calls if _does(call, action)), None)
            if called is not None and called.id not in self._done:
                self._done.add(called.id)
                return answer.generation
            if by_text is None and answer.text.strip() == action.text.strip():
                by_text = answer
        if by_text is not None:
            return by_text.generation
        return self._answers[-1].generation if self._answers else None

    def _similarity(
        self, answer: Answer, message: Message, before: Sequence[Message]
    ) -> tuple[bool, bool, int]:
        """Return how well a reply matches a message at this position; larger is better."""
        assert answer.index is not None
        conversation = self.graph.conversation(answer.index)
        here = len(conversation) == len(before) + 1 and conversation[:-1] == list(before)
        return here, answer.text == message.text, answer.index


def _is(answer: Answer, message: Message) -> bool:
    """Return whether a message is that reply, not an edited version of it.

    Its reasoning may be missing, and so may its text if it has calls.
    """
    text = message.text.strip()
    same = text == answer.text.strip() or (not text and bool(answer.tool_calls))
    signed = not message.signature or message.signature == answer.generation.signature
    return same and signed and _calls(message.tool_calls) == _calls(answer.tool_calls)


def _calls(calls: Sequence[ToolCall]) -> list[tuple[str, str]]:
    """Return ids and canonical forms, equal for calls that differ only in JSON formatting."""
    return [(call.id, _canonical(call)) for call in calls]


def _canonical(call: ToolCall) -> str:
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True)


def _does(call: ToolCall, action: Action) -> bool:
    """Return whether a call proposes that action; frameworks may prefix a server's name."""
    done = action.call or ToolCall(ACT.name, {"action": action.text})
    named = call.name == done.name or call.name.endswith(f"_{done.name}")
    return named and call.arguments == done.arguments
