"""Choices: replies restricted to given texts, as a token tree (trie) that the sampler descends.

At each position only the tokens that continue some choice may be sampled, in proportion to the
model's probabilities (a decoder mask, renewed after each token). A reply is therefore always one of
the choices, end token included, and the probability of a choice is the product of those of its
tokens. This is not the model's distribution over whole texts restricted to the choices: a low
probability of a choice's later tokens does not lower that of its first ones. Greedy decoding
likewise takes the best token of each position, not the best choice.

Each choice is tokenized as the renderer tokenizes it, and in no other way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.core.model import Renderer


class ChoiceTree:
    """The tokens that can continue a reply, by its tokens so far."""

    def __init__(self, replies: Sequence[Sequence[int]]) -> None:
        """Build the tree of the given replies, each with its end token; at least one."""
        self._next: dict[int, dict[int, int]] = {0: {}}  # node to token to child node
        for reply in replies:
            node = 0
            for token in reply:
                node = self._next[node].setdefault(token, len(self._next))
                self._next.setdefault(node, {})
        self.longest = max(len(reply) for reply in replies)  # tokens

    @classmethod
    def of(cls, choices: Sequence[str], renderer: Renderer) -> ChoiceTree:
        """Build the tree of some texts.

        Raises:
            InputError: the renderer's tokens of a text decode to another text, so that the reply
                would not show the choice.
        """
        replies = []
        for choice in choices:
            reply = renderer.reply(choice)
            if renderer.text(reply) != choice:
                raise InputError(
                    f"The choice {choice!r} is changed by tokenization in '{renderer.name}': it "
                    f"decodes to {renderer.text(reply)!r}; omit it, or rephrase it."
                )
            replies.append(reply)
        return cls(replies)

    def allowed(self, sampled: Sequence[int]) -> list[int]:
        """Return the tokens that may follow; none after an end.

        Raises:
            KeyError: the sampled tokens are the beginning of no choice.
        """
        node = 0
        for token in sampled:
            node = self._next[node][token]
        return sorted(self._next[node])


def keep_only(logits: Tensor, row: int, allowed: Sequence[int] | Tensor) -> None:
    """Mask all but the allowed tokens in a row of logits [R, vocabulary], in place."""
    columns = torch.as_tensor(allowed, device=logits.device)
    kept = logits[row, columns]
    logits[row] = -torch.inf
    logits[row, columns] = kept
