"""Models that see: image-text-to-text models of transformers act and learn with their own code.

Such a model is a vision tower, which turns an image into vectors, and a language model, which reads
them in place of the tokens that stand for the image. The tower runs once for each image, by
transformers' code; the language model runs like any other (see `transformers_network`), with the
engine's or the learner's attention. Rotary positions that depend on an image's grid (Qwen-VL) come
from the model's own code too.

When a model is loaded, two sequences with an image each, side by side, are compared with the
model's own pass over each. What does more across tokens (attention both ways among the tokens of an
image, features that enter further layers) is refused: nothing about it is assumed.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.core.message import Image, ImageSpan
from palaestra.models.local.image_reader import ImageReader, Prepared, image_reader
from palaestra.models.local.image_tokens import (
    PLACES,
    ImageNumbers,
    numbers_in,
    replaced,
    with_images,
)
from palaestra.models.local.transformers_attention import ATTENTION, Beside
from palaestra.models.local.transformers_network import (
    TransformersNetwork,
    blank_model,
    close,
    read_model,
    refusal,
)

MOST_NUMBERS = 4_000_000  # of pixels that one pass of the tower reads, where nothing is learned
TRIAL = (48, 64)  # pixels of the sides of the images that a model is tried on


class SeeingNetwork(TransformersNetwork):
    """An image-text-to-text model of transformers, with the interface of `DecoderNetwork`."""

    sees = True

    def __init__(self, model: Any, reader: ImageReader, folder: Path | str = "") -> None:
        """Wrap a model in evaluation mode; `reader` prepares its images.

        Raises:
            InputError: it cannot run here, see above.
        """
        self.reader = reader
        super().__init__(model, folder)

    @property
    def tower_trains(self) -> bool:
        """Whether a weight outside the language model gets gradients."""
        inside = {id(p) for p in self.model.get_decoder().parameters()}
        inside |= {id(p) for p in self.model.get_output_embeddings().parameters()}
        return any(p.requires_grad and id(p) not in inside for p in self.model.parameters())

    def embed(self, tokens: Tensor, features: Mapping[int, Tensor] | None = None) -> Tensor:
        """Return embeddings [N, width]; those of images (see `image_tokens`) are their features."""
        if features is None:
            return super().embed(tokens)
        return replaced(super().embed(tokens.clamp(min=0)), tokens, features)

    def features(self, images: Sequence[Image]) -> list[Tensor]:
        """Return what the tower makes of each image, [its tokens, width]; with gradient if asked.

        Raises:
            InputError: an image cannot be read.
        """
        prepared = [self.reader.prepare(image) for image in images]
        found: dict[int, Tensor] = {}
        for group in _alike(prepared):
            parts = self._seen_by_tower([prepared[at] for at in group])
            found |= zip(group, parts, strict=True)
        return [found[at] for at in range(len(images))]

    def places(self, tokens: Sequence[int], images: Mapping[int, Image]) -> Tensor | None:
        """Return rotary positions [3, N] of a whole sequence; None if its indices are these.

        Args:
            tokens: from the first one on, see `image_tokens`.
            images: those in it, by their numbers.
        """
        find = getattr(self.model.base_model, "get_rope_index", None)
        numbers = numbers_in(tokens)
        if find is None or not numbers:
            return None
        ids = torch.tensor([[self.reader.token if token < 0 else token for token in tokens]])
        kinds = torch.tensor([[int(token < 0) for token in tokens]])
        shown = _runs(tokens)
        grids = [self.reader.prepare(images[number]).inputs["image_grid_thw"] for number in shown]
        found, _ = find(ids, mm_token_type_ids=kinds, image_grid_thw=torch.cat(grids))
        positions: Tensor = found[:, 0].to(self.device)
        return positions

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.reader.save(folder)

    def _states(self) -> nn.Module:
        found: nn.Module = self.model.base_model
        return found

    def _take_attention(self) -> None:
        self.model.get_decoder().set_attn_implementation(ATTENTION)

    def _seen_by_tower(self, prepared: Sequence[Prepared]) -> Sequence[Tensor]:
        inputs = {
            name: torch.cat([one.inputs[name] for one in prepared]).to(self.device)
            for name in prepared[0].inputs
        }
        if "pixel_values" in inputs:
            inputs["pixel_values"] = inputs["pixel_values"].to(self.dtype)
        found = self.model.get_image_features(**inputs).pooler_output
        parts = found if isinstance(found, list | tuple) else [found]
        width = self.config.hidden_size
        whole = torch.cat([part.reshape(-1, width) for part in parts])
        counts = [one.tokens for one in prepared]
        if sum(counts) != len(whole):
            raise refusal(self.folder, f"{len(whole)} vectors for {sum(counts)} tokens of images")
        return whole.split(counts)

    def _own_logits(self) -> list[Tensor]:
        """Return the logits of the trial sequences, first those without images."""
        return super()._own_logits() + [
            self._own_pass(torch.tensor([tokens]), span.image) for tokens, span in self._trials()
        ]

    @torch.no_grad()
    def _own_pass(self, tokens: Tensor, image: Image) -> Tensor:
        given = dict(self.reader.prepare(image).inputs)
        given["pixel_values"] = given["pixel_values"].to(self.dtype)
        takes = inspect.signature(type(self.model).forward).parameters
        for name in ("token_type_ids", "mm_token_type_ids"):  # as processors give them
            if name in takes:
                given[name] = (tokens == self.reader.token).int()
        given = {name: value.to(self.device) for name, value in given.items()}
        found: Tensor = self.model(
            input_ids=tokens.to(self.device), use_cache=False, **given
        ).logits
        return found[0]

    @torch.no_grad()
    def _check(self, wanted: Sequence[Tensor]) -> None:
        trials = self._trials()
        super()._check(wanted[: -len(trials)])
        number = ImageNumbers()
        rows = [with_images(tokens, [span], number) for tokens, span in trials]
        images = {number(span.image): span.image for _, span in trials}
        features = dict(zip(images, self.features(list(images.values())), strict=True))
        tokens = torch.tensor([token for row in rows for token in row], device=self.device)
        places = [self.places(row, images) for row in rows]
        positions = torch.cat(
            [
                torch.arange(len(row), device=self.device) if own is None else own
                for row, own in zip(rows, places, strict=True)
            ],
            dim=-1,
        )
        lengths = [len(row) for row in rows]
        hidden = self.run(self.embed(tokens, features), positions, Beside(lengths))
        for ours, theirs in zip(self.logits(hidden).split(lengths), wanted[-2:], strict=True):
            if not close(ours, theirs, self.dtype):
                raise refusal(
                    self.folder,
                    "tokens of images that do more than stand for features among plain attention",
                )

    def _trials(self) -> list[tuple[list[int], ImageSpan]]:
        """Return sequences with an image each."""
        found: list[tuple[list[int], ImageSpan]] = []
        for row, side in zip(self._rows(), TRIAL, strict=True):
            image = trial_image(side)
            text = self.reader.processor.tokenizer.encode(
                self.reader.prepare(image).text, add_special_tokens=False
            )
            # other tokens of the vocabulary must not look like images
            own = [0 if token == self.reader.token else token for token in row.tolist()]
            tokens = [*own[:3], *text, *own[3:]]
            (span,) = self.reader.spans([image], tokens)
            found.append((tokens, span))
        return found


def load(folder: Path, dtype: torch.dtype) -> SeeingNetwork:
    """Load a checkpoint that sees, by transformers' own code.

    Raises:
        InputError: see `SeeingNetwork`, `image_reader` and `transformers_network.load`.
    """
    reader = image_reader(folder)
    return SeeingNetwork(read_model(folder, dtype), reader, folder)


def blank(folder: Path, dtype: torch.dtype) -> SeeingNetwork:
    """Return the network of a checkpoint that sees without weights, on the device "meta"."""
    reader = image_reader(folder)
    with torch.device("meta"):
        return SeeingNetwork(blank_model(folder, dtype), reader, folder)


def _alike(prepared: Sequence[Prepared]) -> list[list[int]]:
    """Group images whose inputs can be joined, in passes of bounded size."""
    groups: dict[tuple[Any, ...], list[list[int]]] = {}
    for at, one in enumerate(prepared):
        shape = tuple((name, *value.shape[1:]) for name, value in sorted(one.inputs.items()))
        passes = groups.setdefault(shape, [[]])
        most = max(1, MOST_NUMBERS // max(value.numel() for value in one.inputs.values()))
        if len(passes[-1]) >= most:
            passes.append([])
        passes[-1].append(at)
    return [group for passes in groups.values() for group in passes]


def _runs(tokens: Sequence[int]) -> list[int]:
    """Return the number of each image in a sequence, once for each time that it is shown."""
    return [(-1 - token) // PLACES for token in tokens if token < 0 and (-1 - token) % PLACES == 0]


def trial_image(side: int = TRIAL[0]) -> Image:
    """Return a picture of random pixels."""
    from PIL import Image as Picture

    generator = torch.Generator().manual_seed(side)
    pixels = torch.randint(256, (side, side, 3), generator=generator, dtype=torch.uint8)
    stream = io.BytesIO()
    Picture.frombytes("RGB", (side, side), pixels.numpy().tobytes()).save(stream, "PNG")
    return Image.of(stream.getvalue())
