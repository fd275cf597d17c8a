"""Who speaks to a τ² service agent: the interface of a simulated user, and a scripted one.

The benchmark simulates users with a language model. For tests, and for learning without a second
model, `ScriptedUser` follows a task's scenario by rule:

- It opens with the reason for the call. Whatever the agent says, it then tells one more part of
  the scenario: what it knows, what it does not know, what it wants.
- Asked to do one thing on its phone (a tool's name, `reboot_device`, `reboot device`, or a call
  with arguments), it does that and reports what the phone said; of several things it asks for one
  at a time. Tools that need arguments must be asked for as calls.
- With nothing left to tell, it says yes to a question, and ends with the benchmark's stop token
  when it is asked whether there is anything else, or is asked nothing.
- Told that it is being transferred, it ends with the benchmark's token for that.

The scenario's words speak to the user ("You are Anya Garcia"), so they are said in the first
person, by a few rules for pronouns. It cannot weigh conditions ("if the agent says …, then …");
it tells them to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, parse_call
from palaestra.environments.apps.tau2_domain import USER

STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"
ENDS = (STOP, TRANSFER, OUT_OF_SCOPE)
"""The benchmark's tokens: a user's message with one of them ends the conversation."""

TRANSFERRED = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."
"""What the policies have an agent say after a transfer."""

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
class Said:
    """One thing that a user said, heard, or did; `text` is then what their tool answered."""

    who: str
    text: str
    call: ToolCall | None = None


class User(Protocol):
    """Who plays the user: a script, a person, or a model."""

    def reply(self, conversation: Sequence[Said]) -> str | ToolCall:
        """What the user says or does next; a function of the conversation as they saw it."""


class ScriptedUser:
    """A user who follows a scenario by rule."""

    def __init__(self, instructions: Any, tools: Sequence[Tool] = ()) -> None:
        """Of the scenario's instructions as the benchmark has them, and the user's own tools."""
        parts = (
            instructions.reason_for_call,
            instructions.known_info,
            instructions.unknown_info,
            instructions.task_instructions,
        )
        self.parts = tuple(first_person(part) for part in parts if re.search(r"\w", part or ""))
        self._tools = tools

    def reply(self, conversation: Sequence[Said]) -> str | ToolCall:
        last = conversation[-1] if conversation else None
        untold = self.untold(conversation)
        if last is None:
            return untold[0]
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
        if untold:
            return untold[0]
        if "?" not in last.text or re.search(r"\belse\b", last.text, re.IGNORECASE):
            return f"No, that is all. {STOP}"
        return "Yes."

    def untold(self, conversation: Sequence[Said]) -> list[str]:
        """The parts of the scenario that the user has yet to say."""
        told = {said.text for said in conversation if said.who == USER and said.call is None}
        return [part for part in self.parts if part not in told]

    def _asked(self, text: str) -> list[str]:
        """The different things on the phone that a message names, written as calls."""
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
    """The text with its user speaking instead of being spoken to."""
    for pattern, word in FIRST_PERSON:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())
