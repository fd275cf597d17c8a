"""Tokens of images by numbers of their own, so that equal placeholders of different images differ.

In a prompt, all tokens that stand for images are equal. Where tokens identify what they make the
network compute (the prefix cache, rows that share their beginnings), the k-th token of image n gets
a number below zero instead. Then all that compares tokens compares images too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from palaestra.core.message import Image, ImageSpan

BITS = 20
"""Of the number that says which token of its image one is."""

PLACES = 1 << BITS
LOWEST = -(1 << 44)
"""All numbers of tokens of images are above it."""


def with_images(
    tokens: Sequence[int], spans: Iterable[ImageSpan], number: Callable[[Image], int]
) -> list[int]:
    """Return the tokens, those that stand for images by numbers of their own.

    Args:
        tokens: of the model's vocabulary.
        spans: the places of images among them.
        number: the number of an image, from 0 on; equal images have equal ones.
    """
    found = list(tokens)
    for span in spans:
        first, at = number(span.image) * PLACES, 0
        stands = tokens[span.start]
        for place in range(span.start, min(span.stop, len(found))):
            if tokens[place] == stands:
                found[place] = -1 - first - at
                at += 1
    return found


class ImageNumbers:
    """The numbers of images, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, image: Image) -> int:
        return self._numbers.setdefault(image.sha256, len(self._numbers))


def numbers_in(tokens: Iterable[int]) -> list[int]:
    """Return the numbers of the images that some tokens stand for, in order, each once."""
    return list(dict.fromkeys((-1 - token) // PLACES for token in tokens if token < 0))


def replaced(x: Tensor, tokens: Tensor, features: Mapping[int, Tensor]) -> Tensor:
    """Return embeddings in which tokens of images have the features of these.

    Args:
        x: embeddings [N, width]; any where tokens are below zero.
        tokens: numbers of tokens [N], see above.
        features: of each image in them, by its number, [its tokens, width].
    """
    seen = (tokens < 0).nonzero().squeeze(1)
    if not len(seen):
        return x
    each = -1 - tokens[seen]
    numbers = (each // PLACES).tolist()
    first: dict[int, int] = {}
    count = 0
    for number, found in features.items():
        first[number] = count
        count += len(found)
    offsets = torch.tensor([first[number] for number in numbers], device=x.device)
    chosen = torch.cat(list(features.values()))[offsets + each % PLACES]
    return x.index_copy(0, seen, chosen.to(x.dtype))
