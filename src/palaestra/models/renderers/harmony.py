"""Harmony: replies in channels, as gpt-oss writes them.

A reply is one message or several, each with a header of its own: `analysis` is reasoning, `final`
the answer, and `commentary to=functions.NAME` a call with JSON arguments. Commentary without a
recipient is for the user, and so is text. A malformed call stays in the text with its header.

Source: OpenAI's description of the response format of gpt-oss (2025).
"""

from __future__ import annotations

import re

from palaestra.core.message import ToolCall
from palaestra.core.model import Reply, ReplyParser, joined
from palaestra.models.renderers.reply_parser import Trimmed, partial_mark
from palaestra.models.renderers.scanner import Malformed, Scanner

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
ENDS = (END, CALL, RETURN, START)  # a new message also ends the one before it
MARKS = frozenset({START, CHANNEL, MESSAGE, END, "<|constrain|>"})
"""The control tokens within replies."""

CONTINUED = f"{START}assistant"
"""What follows a message that does not end the reply."""


class HarmonyParser(ReplyParser):
    """A parser of one reply in channels."""

    def __init__(self, calls: bool) -> None:
        """Begin after the prompt, which ends in `<|start|>assistant`; without calls, they are text.

        A reply without any header is text.
        """
        self._reads_calls = calls
        self._held = ""  # not yet certain
        self._header: str | None = None  # of the message that is read; None: in a header
        self._recipient = ""
        self._thought = Trimmed()
        self._thoughts = self._texts = 0  # messages of each kind before this one

    def feed(self, text: str) -> Reply:
        self._held += text
        return self._advance(ended=False)

    def finish(self) -> Reply:
        return self._advance(ended=True)

    def _advance(self, ended: bool) -> Reply:
        found = []
        while (part := self._next(ended)) is not None:
            found.append(part)
        return joined(found)

    def _next(self, ended: bool) -> Reply | None:
        """Return the next certain part; None if there is none yet."""
        if self._header is None:
            return self._read_header(ended)
        if self._recipient and not self.thinking:
            return self._read_call(ended)
        places = [place for place in map(self._held.find, ENDS) if place >= 0]
        if not places:
            certain = len(self._held) - (0 if ended else partial_mark(self._held, *ENDS))
            return self._say(certain) if certain else None
        if min(places):
            return self._say(min(places))
        self._close()
        return Reply("")

    def _read_header(self, ended: bool) -> Reply | None:
        header, mark, body = self._held.partition(MESSAGE)
        if not mark:
            if not ended or not self._held:
                return None
            text, self._held = self._held, ""
            return Reply("" if text.startswith((START, CHANNEL)) else text)  # a header was cut
        channel = re.search(r"<\|channel\|>\s*(\w+)", header)
        recipient = re.search(r"\bto=([^\s<]+)", header)
        self._recipient = "" if recipient is None else recipient[1]
        self.thinking = channel is not None and channel[1] == "analysis" and not self._recipient
        self._header, self._held = header + mark, body
        if self.thinking:
            self._thought = Trimmed()
            self._thoughts += 1
            return Reply("", "\n" if self._thoughts > 1 else "")
        if not self._recipient:
            self._texts += 1
            return Reply("\n" if self._texts > 1 else "")
        return Reply("")

    def _read_call(self, ended: bool) -> Reply | None:
        places = [place for place in map(self._held.find, ENDS) if place >= 0]
        if not places and not ended:
            return None
        end = min(places, default=len(self._held))
        body, self._held = self._held[:end], self._held[end:]
        header, recipient = self._header, self._recipient
        self._close()
        name = recipient.removeprefix("functions.")
        scanner = Scanner(body.strip(), 0, ended=True)
        try:
            value = scanner.json() if self._reads_calls and name != recipient else None
            if not isinstance(value, dict) or scanner.place < len(scanner.text):
                raise Malformed
        except Malformed:
            return Reply(f"{header}{body}")
        return Reply("", "", (ToolCall(name, value),))

    def _say(self, count: int) -> Reply:
        text, self._held = self._held[:count], self._held[count:]
        return Reply("", self._thought.more(text)) if self.thinking else Reply(text)

    def _close(self) -> None:
        """Leave a message; its end is skipped."""
        self._header, self._recipient, self.thinking = None, "", False
        mark = next((mark for mark in (END, CALL, RETURN) if self._held.startswith(mark)), "")
        self._held = self._held.removeprefix(mark)
