"""What the vision tower makes of images, kept for the replies that read them again.

A conversation shows an image once, and reads its keys and values from the cache from then on. The
features are needed again where another conversation shows the same image, where a prompt is read in
chunks, or where the cache has dropped it. They are valid until the weights change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from palaestra.core.message import Image
from palaestra.models.local.image_tokens import numbers_in
from palaestra.models.local.network import DecoderNetwork

if TYPE_CHECKING:
    from palaestra.models.local.seeing_network import SeeingNetwork

MEMORY = 64 * 2**20  # bytes of features that are kept


class ImageFeatures:
    """Features of images by their numbers (see `image_tokens`), the latest ones within a budget."""

    def __init__(self, network: DecoderNetwork, memory: int = MEMORY) -> None:
        self._network, self._memory = network, memory
        self._kept: OrderedDict[int, Tensor] = OrderedDict()
        self._bytes = 0

    def clear(self) -> None:
        """Forget all: the weights have changed."""
        self._kept.clear()
        self._bytes = 0

    def embed(self, tokens: Sequence[int], images: Iterable[Mapping[int, Image]]) -> Tensor:
        """Return the embeddings [N, width] of tokens, with the features of images in their places.

        Args:
            tokens: of a pass.
            images: those that they stand for, by their numbers, for each sequence of the pass.
        """
        network = self._network
        given = torch.tensor(tokens, device=network.device)
        if not network.sees:
            return network.embed(given)
        seeing = cast("SeeingNetwork", network)
        every = {number: image for some in images for number, image in some.items()}
        return seeing.embed(given, self._of(seeing, numbers_in(tokens), every))

    def _of(
        self, network: SeeingNetwork, numbers: Sequence[int], images: Mapping[int, Image]
    ) -> dict[int, Tensor]:
        missing = [number for number in numbers if number not in self._kept]
        computed = network.features([images[number] for number in missing])
        found = dict(zip(missing, computed, strict=True))
        for number in numbers:
            if number in self._kept:
                found[number] = self._kept[number]
                self._kept.move_to_end(number)
        for number in missing:
            self._keep(number, found[number])
        return found

    def _keep(self, number: int, features: Tensor) -> None:
        self._kept[number] = features.clone()  # no view of a larger pass
        self._bytes += features.nbytes
        while self._bytes > self._memory:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.nbytes


def embedded(network: DecoderNetwork, tokens: Tensor, images: Mapping[int, Image]) -> Tensor:
    """Return the embeddings [N, width] of tokens, with the features of images in their places.

    Features have gradients if a weight that they depend on is trained.

    Args:
        network: of the pass.
        tokens: see `image_tokens`, [N].
        images: those in it, by their numbers.
    """
    if not images:
        return network.embed(tokens)
    seeing = cast("SeeingNetwork", network)
    with torch.set_grad_enabled(torch.is_grad_enabled() and seeing.tower_trains):
        features = seeing.features(list(images.values()))
    return seeing.embed(tokens, dict(zip(images, features, strict=True)))


def places_of(
    network: DecoderNetwork, tokens: Sequence[int], images: Mapping[int, Image]
) -> Tensor | None:
    """Return the rotary positions of a whole sequence, see `SeeingNetwork.places`."""
    return cast("SeeingNetwork", network).places(tokens, images) if network.sees else None
