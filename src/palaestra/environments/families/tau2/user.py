"""Simulated users for τ² service agents: the interface, and a scripted user.

The benchmark simulates users with a language model. For tests, and for training without a second
model, `ScriptedUser` follows a task's scenario by fixed rules:

- It opens with the reason for the call. After each agent message it states one more part of the
  scenario: what it knows, what it does not know, what it wants.
- If it is asked to do one thing on its phone (a tool's name, `reboot_device`, `reboot device`, or a
  call with arguments), it does so and reports the phone's output. If it is asked for several things
  at once, it asks for one at a time. Tools that need arguments must be requested as calls.
- With nothing left to state, it answers yes to a question. It ends with the benchmark's stop token
  when the message contains no question, or asks whether there is anything else.
- If it is being transferred, it ends with the benchmark's transfer token.

The scenario addresses the user ("You are Anya Garcia"); a few rules for pronouns turn it into the
first person. The scripted user cannot evaluate conditions ("if the agent says …, then …"); it
states them to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, parse_call
from palaestra.environments.families.tau2.domain import USER

STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"
ENDS = (STOP, TRANSFER, OUT_OF_SCOPE)
"""The benchmark's end tokens: a user's message with one of them ends the conversation."""

TRANSFERRED = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."
"""The message that the policies require of an agent after a transfer."""

FIRST_PERSON = (
    (r"(?i)\byou are\b", "I am"),
    (r"(?i)\byou were\b", "I was"),
    (r"(?i)\byou're\b", "I'm"),
    (r"(?i)\byourself\b", "myself"),
    (r"(?i)\byours\b", "mine"),
    (r"\bYour\b", "My"),
    (r"\byour\b", "my"),
    (r"(?i)\b(to|for|with|from|of|tells?|told|gives?|asks?|offers?|helps?|costs?) you\b", r"\1 me"),
    (r"(?i)\byou(?=[.,;:!?)]| to\b| with\b| for\b| about\b)", "me"),
    (r"(?i)\byou\b", "I"),
)


@dataclass(frozen=True, slots=True)
class Utterance:
    """A message to or from the user, or a call by the user with its output in `text`."""

    who: str
    text: str
    call: ToolCall | None = None


class User(Protocol):
    """The interface of a user: a script, a person, or a model."""

    def reply(self, conversation: Sequence[Utterance]) -> str | ToolCall:
        """Return the user's next message or call, given the conversation as the user saw it."""


class ScriptedUser:
    """A user who follows a scenario by fixed rules."""

    def __init__(self, instructions: Any, tools: Sequence[Tool] = ()) -> None:
        """Take the benchmark's scenario instructions and the user's own tools."""
        parts = (
            instructions.reason_for_call,
            instructions.known_info,
            instructions.unknown_info,
            instructions.task_instructions,
        )
        self.parts = tuple(first_person(part) for part in parts if re.search(r"\w", part or ""))
        self._tools = tools

    def reply(self, conversation: Sequence[Utterance]) -> str | ToolCall:
        last = conversation[-1] if conversation else None
        unstated = self.unstated(conversation)
        if last is None:
            return unstated[0]
        if last.call is not None:
            return f"I did {last.call}. My phone says: {last.text}"
        if re.search(r"\bbeing transferred\b", last.text, re.IGNORECASE):
            return TRANSFER
        asked = self._asked(last.text)
        if len(asked) > 1:
            return "I cannot do several things at once. Please tell me one at a time."
        if asked:
            try:
                return parse_call(asked[0], self._tools)
            except NotACall as problem:
                return f"I do not know how to do that. {problem}"
        if unstated:
            return unstated[0]
        if "?" not in last.text or re.search(r"\belse\b", last.text, re.IGNORECASE):
            return f"No, that is all. {STOP}"
        return "Yes."

    def unstated(self, conversation: Sequence[Utterance]) -> list[str]:
        """Return the parts of the scenario that the user has not stated yet."""
        stated = {turn.text for turn in conversation if turn.who == USER and turn.call is None}
        return [part for part in self.parts if part not in stated]

    def _asked(self, text: str) -> list[str]:
        """Return the distinct tools that a message names, written as calls."""
        names = sorted((tool.name for tool in self._tools), key=len, reverse=True)
        if not names:
            return []
        written = "|".join(name.replace("_", "[_ ]") for name in names)
        found = []
        for match in re.finditer(rf"\b({written})\b(\s*\([^()]*\))?", text, re.IGNORECASE):
            name = match[1].lower().replace(" ", "_")
            found.append(name + (match[2] or "()").strip())
        return list(dict.fromkeys(found))


def first_person(text: str) -> str:
    """Rewrite a text that addresses the user into the first person."""
    for pattern, word in FIRST_PERSON:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())
