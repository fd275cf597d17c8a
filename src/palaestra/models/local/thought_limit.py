"""Thought limits: the reasoning of a reply ends after a number of tokens.

Then the engine writes the marker with which the model's family ends a thought (`</think>`, say),
and the model goes on from there. The marker's tokens are forced: they are recorded as such, with
log-probability 0, and never trained. The same limit holds for all thoughts of a reply together.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.errors import InputError
from palaestra.core.model import Renderer
from palaestra.models.local.decoding import IncrementalDecoder


class ThoughtLimit:
    """The reasoning of one reply, token by token."""

    def __init__(self, limit: int, renderer: Renderer, prompt: Sequence[int], model: str) -> None:
        """Begin with an empty reply to `prompt`, whose thoughts may have `limit` tokens.

        Raises:
            InputError: the model's replies have no reasoning apart from their text.
        """
        self._closing = renderer.thought_end
        if not self._closing:
            raise InputError(
                f"reasoning_tokens={limit} is not supported by the model '{model}', whose chat "
                "template has no reasoning; leave it out."
            )
        self._limit = limit
        self._parser = renderer.parser(False, prompt)
        self._decoder = IncrementalDecoder(renderer.text)
        self._count = 0

    def after(self, token: int) -> Sequence[int]:
        """Add a sampled token; return the tokens that have to follow it, mostly none."""
        thought = self._parser.thinking
        self._feed(token)
        self._count += thought and self._parser.thinking
        if not self._parser.thinking or self._count < self._limit:
            return ()
        for closing in self._closing:
            self._feed(closing)
        return self._closing

    def _feed(self, token: int) -> None:
        self._parser.feed(self._decoder.add(token))
