"""Grammars: replies that are held to one, such as JSON of a schema, by a mask over tokens.

At each place of the reply only the tokens with which it stays the beginning of a text of the
grammar may be drawn, in proportion to what the model gives them. A reply is such a text, end token
included, unless `max_tokens` or a stop string cuts it short.

The masks are llguidance's, which reads Lark's notation with `%json` for JSON schemas.
Source: github.com/guidance-ai/llguidance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from palaestra.core.errors import InputError


class Grammars:
    """Grammars over the tokens of one model."""

    def __init__(self, vocabulary: str, size: int, ends: Collection[int]) -> None:
        """Over a `tokenizer.json`, of whose `size` tokens those in `ends` end a reply."""
        self._ends = sorted(ends)
        self._tokens = LLTokenizer(vocabulary, n_vocab=size, eos_token=self._ends)

    def of(self, grammar: str) -> GrammarMask:
        """The mask of one reply; raises InputError for what is no grammar."""
        matcher = LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().partition("\n")[0]
            raise InputError(f"A reply cannot be held to this grammar: {reason}.")
        return GrammarMask(matcher, self._ends)


class GrammarMask:
    """The tokens with which one reply can go on."""

    def __init__(self, matcher: LLMatcher, ends: Sequence[int]) -> None:
        """At the beginning of the reply."""
        self._matcher, self._ends, self._read = matcher, torch.tensor(ends), 0

    def allowed(self, said: Sequence[int]) -> Tensor:
        """The tokens that may follow what has been said, which only ever grows.

        Where the grammar has become too complex for the matcher, the reply can but end.
        """
        self._matcher.consume_tokens(list(said[self._read :]))
        self._read = len(said)
        if self._matcher.is_stopped():
            return self._ends
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        places = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        return torch.from_numpy(places) if len(places) else self._ends
