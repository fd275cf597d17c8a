"""Reply parsing: reasoning, text and tool calls of a reply, whole or while it is sampled.

A parser is fed text in chunks, and returns after each what has become certain. However a reply is
cut into chunks, the parts are the same: nothing is decided that later text could change, and no
partial tag is ever returned as text. A malformed call stays in the text, so that it is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from palaestra.core.model import Reply, ReplyParser, joined
from palaestra.models.renderers.call_syntax import CallSyntax
from palaestra.models.renderers.scanner import Incomplete, Malformed, Scanner

CLOSERS = frozenset(">}])`|")  # a call that is not complete is only tried again after one of these


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags that a model writes around its reasoning."""

    open: str
    close: str

    def written(self, reasoning: str) -> str:
        """Return reasoning in its tags, as written before the text of a reply."""
        return f"{self.open}\n{reasoning}\n{self.close}\n\n"


TAGS = (
    Tags("<think>", "</think>"),
    Tags("[THINK]", "[/THINK]"),
    Tags("<|channel>thought\n", "<channel|>"),
)
"""The tags of reasoning, by which templates are searched in this order."""


def without_tags(text: str) -> str:
    """Return a text without trailing reasoning tags and blanks."""
    text = text.rstrip()
    for tags in TAGS:
        text = text.removesuffix(tags.close).rstrip().removesuffix(tags.open.rstrip()).rstrip()
    return text


class Trimmed:
    """A growing text without the blanks at its beginning and its end."""

    def __init__(self) -> None:
        """Begin with no text."""
        self._begun = False
        self._blanks = ""

    def more(self, text: str) -> str:
        """Append characters; return what is now certain."""
        text = self._blanks + (text if self._begun else text.lstrip())
        certain = text.rstrip()
        self._blanks = text[len(certain) :]
        self._begun = self._begun or bool(certain)
        return certain


def partial_mark(text: str, *marks: str) -> int:
    """Return the length of the longest end of a text that begins a mark without completing it."""
    longest = max(map(len, marks), default=1) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        if any(mark.startswith(text[start:]) for mark in marks):
            return len(text) - start
    return 0


class _Answer(Protocol):
    """The part of a reply after its reasoning."""

    def more(self, text: str, ended: bool) -> Reply:
        """Append characters, with `ended` the last ones; return what has become certain."""


class TagParser(ReplyParser):
    """A parser of reasoning in tags, followed by text with calls."""

    def __init__(
        self, tags: Tags | None, opened: bool, calls: CallSyntax | None, parallel: bool = True
    ) -> None:
        """Begin with an empty reply.

        Args:
            tags: around the reasoning; None if there is none.
            opened: whether the prompt ends in the opening tag.
            calls: how calls are written; None: they are text.
            parallel: whether one reply may make several calls; if not, several are text.
        """
        self._tags = tags
        self._answer = _answer(calls, parallel)
        self._held = ""  # not yet certain
        self._thought = Trimmed()
        self._state: Callable[[bool], Reply | None] = self._begin
        self.thinking = tags is not None and opened

    def feed(self, text: str) -> Reply:
        self._held += text
        return self._advance(ended=False)

    def finish(self) -> Reply:
        return self._advance(ended=True)

    def _advance(self, ended: bool) -> Reply:
        found = []
        while (part := self._state(ended)) is not None:
            found.append(part)
        return joined(found)

    def _begin(self, ended: bool) -> Reply | None:
        """Find out whether the reply begins with reasoning."""
        body = self._held.lstrip()
        if self._tags is not None:
            if body.startswith(self._tags.open):
                self._held = body.removeprefix(self._tags.open)
                self.thinking = True
            elif not ended and self._tags.open.startswith(body):
                return None
        self._state = self._think if self.thinking else self._reply
        return Reply("")

    def _think(self, ended: bool) -> Reply | None:
        assert self._tags is not None
        thought, close, rest = self._held.partition(self._tags.close)
        if close:
            self._held, self.thinking, self._state = rest, False, self._break
            return Reply("", self._thought.more(thought))
        certain = len(thought) - (0 if ended else partial_mark(thought, self._tags.close))
        if not certain:
            return None
        self._held = thought[certain:]
        return Reply("", self._thought.more(thought[:certain]))

    def _break(self, ended: bool) -> Reply | None:
        """Skip the line breaks after the reasoning."""
        self._held = self._held.lstrip("\n")
        if not self._held and not ended:
            return None
        self._state = self._reply
        return Reply("")

    def _reply(self, ended: bool) -> Reply | None:
        text, self._held = self._held, ""
        if not text and not ended:
            return None
        if ended:
            self._state = self._end
        return self._answer.more(text, ended)

    def _end(self, ended: bool) -> Reply | None:
        return None


class _Words:
    """An answer without calls."""

    def more(self, text: str, ended: bool) -> Reply:
        return Reply(text)


class _WholeCalls:
    """An answer that is calls and nothing else, or text."""

    def __init__(self, syntax: CallSyntax) -> None:
        self._syntax = syntax
        self._held = ""
        self._text = False  # it is text, for sure

    def more(self, text: str, ended: bool) -> Reply:
        if self._text:
            return Reply(text)
        self._held += text
        body = self._held.lstrip()
        if body.startswith(self._syntax.opens):
            if not ended and not CLOSERS & set(text):
                return Reply("")
            start = len(self._held) - len(body)
            try:
                return Reply("", "", tuple(self._syntax.read(Scanner(self._held, start, ended))))
            except Incomplete:
                return Reply("")
            except Malformed:
                pass
        elif not ended and any(mark.startswith(body) for mark in self._syntax.opens):
            return Reply("")
        self._text = True
        return Reply(self._held)


class _MixedCalls:
    """An answer of text and calls, in any order.

    Where there are calls, blanks before them are dropped.
    """

    def __init__(self, syntax: CallSyntax) -> None:
        self._syntax = syntax
        self._held = ""  # not yet certain; a call is tried at its beginning if `_waits`
        self._waits = False
        self._blanks = ""  # after the text so far
        self._spoken = self._called = False  # whether there was text, or a call

    def more(self, text: str, ended: bool) -> Reply:
        self._held += text
        if self._waits and not ended and not CLOSERS & set(text):
            return Reply("")
        found = []
        while (part := self._next(ended)) is not None:
            found.append(part)
        if ended and not self._called:
            found.append(Reply(self._blanks))
        return joined(found)

    def _next(self, ended: bool) -> Reply | None:
        """Return the next certain part; None if there is none yet."""
        opens = self._syntax.opens
        places = [place for place in map(self._held.find, opens) if place >= 0]
        if not places:
            certain = len(self._held) - (0 if ended else partial_mark(self._held, *opens))
            self._waits = False
            return self._say(certain) if certain else None
        if min(places):
            return self._say(min(places))
        scanner = Scanner(self._held, 0, ended)
        self._waits = False
        try:
            calls = self._syntax.read(scanner)
        except Incomplete:
            self._waits = True
            return None
        except Malformed:
            return self._say(next(len(mark) for mark in opens if self._held.startswith(mark)))
        self._held = self._held[scanner.place :]
        self._blanks = self._blanks if self._spoken else ""
        self._called = True
        return Reply("", "", tuple(calls))

    def _say(self, count: int) -> Reply:
        """Return the first characters as text, without the blanks at their end."""
        text, self._held = self._held[:count], self._held[count:]
        if self._called and not self._spoken:
            text = text.lstrip()
        text = self._blanks + text
        certain = text.rstrip()
        self._blanks = text[len(certain) :]
        self._spoken = self._spoken or bool(certain)
        return Reply(certain)


class _OneCall:
    """An answer with at most one call; with more of them it is text."""

    def __init__(self, syntax: CallSyntax) -> None:
        self._answer = _MixedCalls(syntax)
        self._raw = ""  # all that was read and not yet returned
        self._held = list[Reply]()  # since the first call

    def more(self, text: str, ended: bool) -> Reply:
        self._raw += text
        part = self._answer.more(text, ended)
        if not self._held and not part.tool_calls:
            self._raw = self._raw[len(part.text) :]
            return part
        self._held.append(part)
        if not ended:
            return Reply("")
        whole = joined(self._held)
        return whole if len(whole.tool_calls) == 1 else Reply(self._raw)


def _answer(calls: CallSyntax | None, parallel: bool) -> _Answer:
    if calls is None:
        return _Words()
    if calls.whole:
        return _WholeCalls(calls)
    return _MixedCalls(calls) if parallel else _OneCall(calls)
