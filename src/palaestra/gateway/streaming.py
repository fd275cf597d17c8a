"""Streaming: a reply is sent during sampling, in chunks that add up to the whole reply.

Only certain text is sent. Held back is what may be half a character, the beginning of a stop string
or of a tool call, or blanks before a call. It is sent once it is certain, at the latest with the
whole reply. The same holds for replies of models that do not stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from palaestra.core.message import user
from palaestra.core.model import Renderer, Reply, ReplyParser
from palaestra.gateway import hermes_tags
from palaestra.gateway.program_requests import Answer, Question
from palaestra.models.local.decoding import IncrementalDecoder

Token = tuple[str, float]
"""A token as text, and its log-probability."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a reply, and the tokens that end in it or before it."""

    text: str
    reasoning: str
    tokens: tuple[Token, ...]


class EventWriter(Protocol):
    """A protocol's format of a reply as server-sent events."""

    def begin(self) -> Iterator[str]:
        """Yield the events before the first chunk."""

    def more(self, chunk: Chunk) -> Iterator[str]:
        """Yield the events of a chunk: its reasoning, then its text."""

    def end(self, rest: Chunk, answer: Answer) -> Iterator[str]:
        """Yield the events of the last chunk, the calls, and the finish reason."""


class CertainPrefix:
    """The certain part of a streamed text, without stop strings and calls, in linear time."""

    def __init__(self, stops: Sequence[str], *, calls: bool) -> None:
        """Begin with an empty text; with `calls`, it may have calls in Hermes's tags."""
        self._stops = stops
        self._pending = ""  # possibly the beginning of a stop string
        self._stopped = False
        self._outside_calls = hermes_tags.TextOutsideCalls() if calls else None

    def more(self, text: str) -> str:
        """Append characters; return the text that has become certain."""
        if self._stopped:
            return ""
        held = self._pending + text
        cuts = [held.index(stop) for stop in self._stops if stop in held]
        self._stopped = bool(cuts)
        certain = hermes_tags.without_partial_tag(
            held[: min(cuts, default=len(held))], *self._stops
        )
        self._pending = held[len(certain) :]
        return certain if self._outside_calls is None else self._outside_calls.more(certain)


class StreamedReply:
    """The state of one reply during streaming."""

    def __init__(self, question: Question, renderer: Renderer | None, *, native: bool) -> None:
        """Begin with an empty reply; `native` is whether the model parses its calls itself."""
        offered = native and bool(question.tools)
        # Calls that the program cannot take become text once the reply is complete.
        self._renderer = None if offered and not question.calls else renderer
        self._decoding = None if self._renderer is None else IncrementalDecoder(self._renderer.text)
        self._parser: ReplyParser | None = None  # None: the reply is text
        if self._renderer is not None and (offered or self._renderer.thought_end):
            prompt = None if offered else self._renderer.start([user("?")])
            self._parser = self._renderer.parser(offered, prompt)
        self._certain = CertainPrefix(question.stop, calls=question.calls and not offered)
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ends: list[int] = []  # characters up to each token that was decoded
        self._sent = self._sent_reasoning = 0  # characters
        self._sent_tokens = 0
        self._news = asyncio.Event()

    def listen(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Add sampled tokens; a `Listener`."""
        self._tokens += tokens
        self._logprobs += logprobs
        self._news.set()

    async def wait(self, answer: asyncio.Task[Answer], seconds: float) -> bool:
        """Wait for new tokens, the answer, or a timeout; return whether there are new tokens."""
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({news, answer}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        return self._news.is_set()

    def next_chunk(self) -> Chunk | None:
        """Return the certain text that was not sent yet; None if there is none."""
        self._news.clear()
        if self._decoding is None:
            return None
        grown = ""
        for token in self._tokens[len(self._ends) :]:
            new = self._decoding.add(token)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(new))
            grown += new
        if self._parser is not None:
            return self._parsed_chunk(self._parser.feed(grown))
        text = self._certain.more(grown)
        if not text:
            return None
        self._sent += len(text)
        first = self._sent_tokens
        while self._sent_tokens < len(self._ends) and self._ends[self._sent_tokens] <= self._sent:
            self._sent_tokens += 1
        return Chunk(text, "", tuple(self._pairs(first, self._sent_tokens)))

    def _parsed_chunk(self, part: Reply) -> Chunk | None:
        """Return the parsed part of a reply as a chunk; its tokens are sent with the last chunk."""
        text = self._certain.more(part.text)
        self._sent += len(text)
        self._sent_reasoning += len(part.reasoning)
        return Chunk(text, part.reasoning, ()) if text or part.reasoning else None

    def rest(self, answer: Answer) -> Chunk:
        """Return the part of the complete reply that was not sent yet."""
        tokens = answer.tokens[self._sent_tokens :]
        reasoning = answer.generation.reasoning[self._sent_reasoning :]
        return Chunk(answer.text[self._sent :], reasoning, tokens)

    def _pairs(self, first: int, last: int) -> Iterator[Token]:
        assert self._renderer is not None
        texts = self._renderer.token_strings(self._tokens[first:last])
        return zip(texts, self._logprobs[first:last], strict=True)
