"""The messages that a player was shown, read from the record.

A message is a step whose `info` names its channel and recipients; the step at which it was shown to
a player has its number there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.episode import Step
from palaestra.core.tool import Tool, parse_call

TEXT = {"type": "string"}
SEND = Tool(
    "send_message",
    "Send a message to a player, to several (a, b) or to all; it makes no move.",
    {
        "type": "object",
        "properties": {"to": TEXT, "text": TEXT, "channel": TEXT},
        "required": ["to", "text"],
    },
)


@dataclass(frozen=True, slots=True)
class Mail:
    """A message that was shown to a player."""

    number: int  # of the message in the episode
    channel: str
    sender: str
    to: tuple[str, ...]  # all recipients
    text: str
    sent: int  # the index of the step that sent it
    shown: int  # the index of the step after which this player saw it


def inbox(steps: Sequence[Step], player: str) -> list[Mail]:
    """Return the messages that a player was shown in these first steps of an episode, in order."""
    sent = {step.transition.info["message"]: step for step in steps if _is_message(step)}
    found: list[Mail] = []
    for step in steps:
        for number in step.transition.info.get("shown", {}).get(player, ()):
            message = sent[number]
            info, sender = message.transition.info, message.before.turn
            assert sender is not None  # several players act
            found.append(
                Mail(
                    number,
                    info["channel"],
                    sender,
                    tuple(info["to"]),
                    _text(message),
                    message.index,
                    step.index,
                )
            )
    return found


def _is_message(step: Step) -> bool:
    return "message" in step.transition.info


def _text(step: Step) -> str:
    """Return the text of a message, which a tool call or a whole reply says."""
    call = step.action.call or parse_call(step.action.text, (SEND,))
    return str(call.arguments["text"])
