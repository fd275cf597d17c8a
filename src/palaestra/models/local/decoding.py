"""Incremental decoding: a reply's text token by token, in time linear in its length.

The texts of single tokens cannot be joined: a character may be spread over several tokens, and some
tokenizers drop a blank before the first one. So each token is decoded after the few before it. A
character has at most four bytes, and each token at least one unless it has no text at all, so
earlier tokens change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"  # the decoded text of an incomplete character
KEPT = 8  # tokens with text that are decoded again before the next one


class IncrementalDecoder:
    """The text of a growing list of tokens."""

    def __init__(self, text: Callable[[Sequence[int]], str]) -> None:
        """Start with no tokens; `text` decodes tokens from the beginning, like `Renderer.text`."""
        self._text = text
        self._window: list[int] = []
        self._seen = ""  # the text of the window
        self._unfinished = 0  # characters at the end that may become others

    def add(self, token: int) -> str:
        """Add a token; return the text that is now certain, which ends in no half character."""
        longer = self._text([*self._window, token])
        if longer == self._seen and self._window and not self._text([token]):
            return ""  # a control token has no text in any position
        same = _common(self._seen, longer)
        left = max(0, self._unfinished - (len(self._seen) - same))
        new = longer[same:]
        self._window.append(token)
        self._seen = longer
        if len(self._window) > 2 * KEPT:
            self._window = self._window[-KEPT:]
            self._seen = self._text(self._window)
        certain = new.rstrip(UNFINISHED)
        self._unfinished = len(new) - len(certain) + (0 if certain else left)
        return UNFINISHED * left + certain if certain else ""

    @property
    def rest(self) -> str:
        """The uncertain end: the text so far is everything that `add` returned, plus this."""
        return UNFINISHED * self._unfinished


class StopDetector:
    """A search for stop strings in the end of a growing reply."""

    def __init__(self, text: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        """Start with an empty reply."""
        self._decoder, self._stops, self._end = IncrementalDecoder(text), stops, ""

    def stops(self, token: int) -> bool:
        """Add a token; return whether it completes a stop string. None was complete before it."""
        text = self._end + self._decoder.add(token)
        self._end = text[max(0, len(text) - max(map(len, self._stops))) :]
        return any(stop in text + self._decoder.rest for stop in self._stops)


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    if other.startswith(one):
        return len(one)
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
