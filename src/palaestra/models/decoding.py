"""Decoding a reply token by token, in time that grows with its length and no faster.

The words of tokens cannot be joined: a character may be spread over several of them, and some
tokenizers drop a blank before the first one. So each token is decoded behind the few that came
before it. A character has four bytes at most and each token at least one, unless it has no words at
all, so what lies further back changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"  # what the bytes of half a character are decoded to
KEPT = 8  # tokens with words that are decoded again before the next one


class Decoding:
    """The words of a list of tokens that grows."""

    def __init__(self, text: Callable[[Sequence[int]], str]) -> None:
        """Of no tokens yet; `text` decodes some from the beginning, as `Renderer.text` does."""
        self._text = text
        self._window: list[int] = []
        self._seen = ""  # the words of the window
        self._unfinished = 0  # characters at the end that may become others

    def add(self, token: int) -> str:
        """What is certain by the next token: it never ends in what may be half a character."""
        longer = self._text([*self._window, token])
        if longer == self._seen and self._window and not self._text([token]):
            return ""  # a control token has no words, wherever it stands
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
        """What is not certain: the words so far are all that `add` gave, and this."""
        return UNFINISHED * self._unfinished


class Said:
    """The end of what a reply says, in which stop strings are looked for."""

    def __init__(self, text: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        """Nothing is said yet."""
        self._decoding, self._stops, self._end = Decoding(text), stops, ""

    def stops(self, token: int) -> bool:
        """Whether a stop string is said with the next token; none was before it."""
        said = self._end + self._decoding.add(token)
        self._end = said[max(0, len(said) - max(map(len, self._stops))) :]
        return any(stop in said + self._decoding.rest for stop in self._stops)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    if other.startswith(one):
        return len(one)
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
