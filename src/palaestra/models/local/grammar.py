"""Grammars: constrained decoding by a mask over tokens, for example to JSON of a schema.

At each position only the tokens that keep the reply a prefix of the grammar's texts may be sampled,
in proportion to the model's probabilities. A reply is a text of the grammar, end token included,
unless `max_tokens` or a stop string cuts it short.

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
    """A compiler of grammars to masks over one model's tokens."""

    def __init__(self, vocabulary: str, size: int, ends: Collection[int]) -> None:
        """Read a `tokenizer.json` with `size` tokens; those in `ends` end a reply."""
        self._ends = sorted(ends)
        self._tokens = LLTokenizer(vocabulary, n_vocab=size, eos_token=self._ends)

    def of(self, grammar: str) -> GrammarMask:
        """Return the mask of one reply; raise InputError if the grammar is invalid."""
        matcher = LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().partition("\n")[0]
            raise InputError(f"The grammar of the reply is invalid: {reason}; correct it.")
        return GrammarMask(matcher, self._ends)


class GrammarMask:
    """The tokens that can continue one reply."""

    def __init__(self, matcher: LLMatcher, ends: Sequence[int]) -> None:
        """Start at the beginning of the reply."""
        self._matcher, self._ends, self._read = matcher, torch.tensor(ends), 0

    def allowed(self, sampled: Sequence[int]) -> Tensor:
        """Return the tokens that may follow the sampled ones, which only grow between calls.

        If the grammar becomes too complex for the matcher, the reply can only end.
        """
        self._matcher.consume_tokens(list(sampled[self._read :]))
        self._read = len(sampled)
        if self._matcher.is_stopped():
            return self._ends
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        places = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        return torch.from_numpy(places) if len(places) else self._ends
