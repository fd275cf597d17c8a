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
from palaestra.models.decoding import Decoding
from palaestra.rollout.gateway import hermes
from palaestra.rollout.gateway.conversation import Answer, Question

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


class Sure:
    """What a reply that grows will say in words for sure; each character is looked at once."""

    def __init__(self, question: Question) -> None:
        """Nothing is sampled yet."""
        self._stops = question.stop
        self._held = ""  # what may be the beginning of a stop string
        self._stopped = False
        self._words = hermes.Words() if question.calls else None

    def more(self, text: str) -> str:
        """What is sure by the next characters and was not before."""
        if self._stopped:
            return ""
        held = self._held + text
        cuts = [held.index(stop) for stop in self._stops if stop in held]
        self._stopped = bool(cuts)
        sure = hermes.before_beginning(held[: min(cuts, default=len(held))], *self._stops)
        self._held = held[len(sure) :]
        return sure if self._words is None else self._words.more(sure)


class Telling:
    """One reply, from its first token to its last."""

    def __init__(self, question: Question, renderer: Renderer | None) -> None:
        """Nothing is sampled yet."""
        self._renderer = renderer
        self._decoding = None if renderer is None else Decoding(renderer.text)
        self._sure = Sure(question)
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ends: list[int] = []  # characters up to each token that was decoded
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
        if self._decoding is None:
            return None
        said = ""
        for token in self._tokens[len(self._ends) :]:
            new = self._decoding.add(token)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(new))
            said += new
        words = self._sure.more(said)
        if not words:
            return None
        self._words += len(words)
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
