"""Choices: replies of which one must be said, as a tree of tokens that a sampler walks down.

At each place of the reply only the tokens with which some choice goes on may be drawn, in
proportion to what the model gives them (a decoder mask, renewed after each token). A reply is
therefore always one of the choices, end token included, and the probability of a choice is the
product of those of its tokens. That is not the model's distribution over whole texts restricted to
the choices: what a model holds against the later tokens of a choice does not count against its
first ones. Greedy decoding likewise takes the best token of each place, not the best choice.

Each choice is spelt as the renderer would spell it, and in no other way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.core.model import Renderer


class ChoiceTree:
    """The tokens with which a reply can go on, by what has been said of it."""

    def __init__(self, replies: Sequence[Sequence[int]]) -> None:
        """The tree of the given replies, each with its end token; at least one."""
        self._next: dict[int, dict[int, int]] = {0: {}}  # place to token to the place behind it
        for reply in replies:
            place = 0
            for token in reply:
                place = self._next[place].setdefault(token, len(self._next))
                self._next.setdefault(place, {})
        self.longest = max(len(reply) for reply in replies)  # tokens

    @classmethod
    def of(cls, choices: Sequence[str], renderer: Renderer) -> ChoiceTree:
        """The tree of some texts.

        Raises:
            InputError: the renderer's tokens of a text read back as another one, so that its
                choice could not be told from the reply.
        """
        replies = []
        for choice in choices:
            reply = renderer.reply(choice)
            if renderer.text(reply) != choice:
                raise InputError(
                    f"The choice {choice!r} has no tokens of its own in '{renderer.name}': they "
                    f"read {renderer.text(reply)!r}; leave it out, or write it otherwise."
                )
            replies.append(reply)
        return cls(replies)

    def allowed(self, said: Sequence[int]) -> list[int]:
        """The tokens that may follow; none after an end.

        Raises:
            KeyError: what has been said is the beginning of no choice.
        """
        place = 0
        for token in said:
            place = self._next[place][token]
        return sorted(self._next[place])


def only(logits: Tensor, row: int, allowed: Sequence[int] | Tensor) -> None:
    """Take all mass from the other tokens of a row of logits [R, vocabulary], in place."""
    places = torch.as_tensor(allowed, device=logits.device)
    kept = logits[row, places]
    logits[row] = -torch.inf
    logits[row, places] = kept
