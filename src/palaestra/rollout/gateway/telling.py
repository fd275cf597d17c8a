"""A reply told while it is sampled: only what is sure, so that the parts make the whole reply.

Not sure yet is what may turn out to be half a character, the beginning of a stop string or of a
tool's call, or blanks before a call. It is told once it is sure, at the latest when the reply is
whole. What a model does not tell while it samples is told then as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from palaestra.core.model import Renderer
from palaestra.rollout.gateway.conversation import Answer, Question

UNFINISHED = "\ufffd"  # what the bytes of half a character are decoded to

Known = tuple[str, float]
"""A token as text, and the log-probability by which it was sampled."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some more words of a reply, and the tokens that end in them or before them."""

    words: str
    tokens: tuple[Known, ...]


class Teller(Protocol):
    """A protocol's way to tell a reply as server-sent events."""

    def begin(self) -> Iterator[str]:
        """Before the first part."""

    def more(self, part: Piece) -> Iterator[str]:
        """Some words."""

    def end(self, rest: Piece, answer: Answer) -> Iterator[str]:
        """The last part, then the calls of the answer, and why it ended."""


class Telling:
    """One reply, from its first token to its last."""

    def __init__(self, question: Question, renderer: Renderer | None) -> None:
        """Nothing is sampled yet."""
        self._question, self._renderer = question, renderer
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ends: list[int] = []  # the length of the text up to each token that was looked at
        self._text = ""  # of those
        self._words = 0  # characters that were told
        self._known = 0  # tokens that were told
        self._news = asyncio.Event()

    def listen(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Take down what was sampled; a `Listener`."""
        self._tokens += tokens
        self._logprobs += logprobs
        self._news.set()

    async def wait(self, answer: asyncio.Task[Answer], seconds: float) -> bool:
        """Come back when something was sampled (true), the answer is there, or time is up."""
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({news, answer}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        return self._news.is_set()

    def part(self) -> Piece | None:
        """What is sure by now and was not told; None: no words are."""
        self._news.clear()
        if self._renderer is None:
            return None
        while len(self._ends) < len(self._tokens):
            self._text = self._renderer.text(self._tokens[: len(self._ends) + 1])
            self._ends.append(len(self._text.rstrip(UNFINISHED)))
        sure = self._question.sure(self._text.rstrip(UNFINISHED))
        if len(sure) <= self._words:
            return None
        words, self._words = sure[self._words :], len(sure)
        first = self._known
        while self._known < len(self._ends) and self._ends[self._known] <= self._words:
            self._known += 1
        return Piece(words, tuple(self._pairs(first, self._known)))

    def rest(self, answer: Answer) -> Piece:
        """What was not told of the whole reply: its last words, and all other tokens."""
        return Piece(answer.content[self._words :], answer.known[self._known :])

    def _pairs(self, first: int, last: int) -> Iterator[Known]:
        assert self._renderer is not None
        pieces = self._renderer.pieces(self._tokens[first:last])
        return zip(pieces, self._logprobs[first:last], strict=True)
