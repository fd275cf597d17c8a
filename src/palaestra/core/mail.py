"""What players said to each other, read from the record: their messages, and counts by channel.

A message is a step whose `info` names its channel, recipients and bytes; the step at which it was
shown to a player has its number there. Values on boards and replies within a team are counted too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode, Step
from palaestra.core.tool import Tool, parse_call

TEXT = {"type": "string"}
COUNTS = ("messages", "bytes", "tokens")  # of `ChannelUse`
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


@dataclass(frozen=True, slots=True)
class ChannelUse:
    """How much was said on a channel, on a board, or within a team."""

    messages: int = 0
    bytes: int = 0  # of their texts, in UTF-8
    tokens: int = 0  # sampled for them, as far as models expose them

    def __add__(self, other: ChannelUse) -> ChannelUse:
        return ChannelUse(
            self.messages + other.messages, self.bytes + other.bytes, self.tokens + other.tokens
        )


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


def channel_use(episodes: Iterable[Episode]) -> dict[str, ChannelUse]:
    """Return how much was said by channel, in order; empty where nothing was.

    The tokens of a reply with several tool calls count for the first of its messages.
    """
    found: dict[str, ChannelUse] = {}
    for episode in episodes:
        counted: set[int] = set()
        for step in episode.steps:
            info = step.transition.info
            board = f"board {info['board']}" if "version" in info else None
            name = info.get("channel", board)
            if name is None:
                continue
            size = info.get("bytes")
            if size is None:  # a reply in a team
                size = len(str(step.action.call or step.action.text).encode())
            tokens = 0
            if step.call is not None and step.call not in counted:
                counted.add(step.call)
                tokens = episode.calls[step.call].sampled
            found[name] = found.get(name, ChannelUse()) + ChannelUse(1, size, tokens)
    return found


def _is_message(step: Step) -> bool:
    return "message" in step.transition.info


def _text(step: Step) -> str:
    """Return the text of a message, which a tool call or a whole reply says."""
    call = step.action.call or parse_call(step.action.text, (SEND,))
    return str(call.arguments["text"])
