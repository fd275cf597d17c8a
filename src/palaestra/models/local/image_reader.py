"""Images as a checkpoint's own processor prepares them for its vision tower.

The processor of transformers says how an image is resized, cut and normalised, and by which tokens
it is shown to the language model. It always runs on PIL and numpy, never on torchvision: equal
bytes are equal pixels on every machine. Its video half, which needs torchvision, is left out.
"""

from __future__ import annotations

import io
import json
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image as Picture
from PIL.Image import DecompressionBombError as TooLarge
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.core.message import Image, ImageSpan
from palaestra.models.local.config_keys import ELSEWHERE

MEMORY = 256 * 2**20  # bytes of images that stay prepared
LARGEST = 64_000_000  # pixels of an image; PIL holds 3 bytes of each
SAME_AS = {"SmolVLMProcessor": "Idefics3Processor"}
"""Processors that need further packages, and others that treat images in the same way."""

PROCESSORS = ("processor_config.json", "preprocessor_config.json")
FILES = (
    "*processor_config.json",
    "chat_template*",
    "additional_chat_templates",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
)
"""What a checkpoint holds besides its model and its configuration."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One image, ready for the vision tower."""

    text: str  # stands in the prompt for the placeholder of the chat template
    tokens: int  # tokens of `text` that stand for the image: vectors of the vision tower
    inputs: dict[str, Tensor]  # arguments of `get_image_features`

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in self.inputs.values())


class ImageReader:
    """Prepares images by the processor of a checkpoint; the latest ones stay prepared."""

    def __init__(self, processor: Any, token: int, folder: Path) -> None:
        """Prepare images.

        Args:
            processor: of transformers.
            token: stands for parts of an image.
            folder: of the checkpoint.
        """
        self.processor, self.token, self.folder = processor, token, folder
        self.placeholder: str = processor.image_token
        self._prepared: OrderedDict[str, Prepared] = OrderedDict()
        self._bytes = 0

    def prepare(self, image: Image) -> Prepared:
        """Return an image as the vision tower takes it.

        Raises:
            InputError: its bytes are no complete image, or it is too large.
        """
        known = self._prepared.get(image.sha256)
        if known is not None:
            self._prepared.move_to_end(image.sha256)
            return known
        made = self._prepared[image.sha256] = self._read(image)
        self._bytes += made.nbytes
        while self._bytes > MEMORY and len(self._prepared) > 1:
            _, dropped = self._prepared.popitem(last=False)
            self._bytes -= dropped.nbytes
        return made

    def spans(self, images: Sequence[Image], tokens: Sequence[int]) -> tuple[ImageSpan, ...]:
        """Return the places of images, in order, among the tokens of a text that shows them."""
        places = [at for at, token in enumerate(tokens) if token == self.token]
        counts = [self.prepare(image).tokens for image in images]
        assert len(places) == sum(counts), "the template shows another number of images"
        found, at = [], 0
        for image, count in zip(images, counts, strict=True):
            found.append(ImageSpan(image, places[at], places[at + count - 1] + 1))
            at += count
        return tuple(found)

    def save(self, folder: Path) -> None:
        """Copy the files of the processor, the tokenizer and the chat template, as they are."""
        for pattern in FILES:
            for source in self.folder.glob(pattern):
                if source.is_dir():
                    shutil.copytree(source, folder / source.name, dirs_exist_ok=True)
                elif source.resolve() != (folder / source.name).resolve():
                    shutil.copyfile(source, folder / source.name)

    def _read(self, image: Image) -> Prepared:
        processor = self.processor
        try:
            pixels = _pixels(image.data)
            inputs = processor.image_processor(
                [pixels], return_tensors="pt", **_image_defaults(processor)
            )
        except (OSError, ValueError, SyntaxError, TypeError, TooLarge) as error:
            line = " ".join(str(error).split())[:120]
            raise InputError(
                f"The image {image.sha256[:12]}… of {image.size} bytes ({image.media_type}) cannot "
                f"be read ({line}); give a complete picture of ordinary size."
            ) from error
        text = str(processor.replace_image_token(inputs, 0))
        tokens = processor.tokenizer.encode(text, add_special_tokens=False)
        kept = {
            name: value
            for name, value in inputs.items()
            if isinstance(value, Tensor) and name not in ("rows", "cols")
        }
        return Prepared(text, tokens.count(self.token), kept)


def _image_defaults(processor: Any) -> dict[str, Any]:
    """Return what a processor passes to its image processor unless told otherwise.

    It stands with the processor; in transformers 5.17, with the class of its arguments.
    """
    before = getattr(processor.valid_processor_kwargs, "_defaults", {}).get("images_kwargs", {})
    return {**before, **getattr(processor, "images_kwargs", {})}


@lru_cache(maxsize=4)
def _reader(folder: Path, stamp: tuple[int, ...]) -> ImageReader:
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(folder)
    processor = _processor(folder, config)
    token = getattr(config, "image_token_id", None)
    if token is None:
        token = getattr(config, "image_token_index", None)
    if token is None or getattr(processor, "image_token", None) is None:
        raise InputError(
            f"The model in '{folder}' has no token that stands for images, so it cannot see here; "
            f"{ELSEWHERE}."
        )
    return ImageReader(processor, int(token), folder)


def image_reader(folder: Path) -> ImageReader:
    """Return the reader of a checkpoint that sees; the same one for all that use the folder.

    Raises:
        InputError: it has no processor, or one that does not work without torchvision.
    """
    files = [folder / name for name in ("config.json", *PROCESSORS)]
    stamp = tuple(file.stat().st_mtime_ns for file in files if file.is_file())
    return _reader(folder.resolve(), stamp)


def _pixels(data: bytes) -> Any:
    """Return the image of a file's bytes, in RGB."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # our own bound is lower than PIL's
        picture = Picture.open(io.BytesIO(data))
        if picture.width * picture.height > LARGEST:
            raise ValueError(f"{picture.width} x {picture.height} pixels are more than {LARGEST}")
        return picture.convert("RGB")


def _processor(folder: Path, config: Any) -> Any:
    """Return the processor of a checkpoint, without its video half."""
    from transformers.models.auto.processing_auto import processor_class_from_name

    name = _processor_name(folder, config)
    wanted = None if name is None else processor_class_from_name(SAME_AS.get(name, name))
    if wanted is None:
        raise InputError(
            f"The model in '{folder}' sees images, but has no processor that transformers knows "
            f"({' or '.join(PROCESSORS)}); download it again, or {ELSEWHERE}."
        )
    try:
        return without_videos(wanted).from_pretrained(folder, backend="pil")
    except (OSError, ValueError, TypeError, ImportError, AttributeError) as error:
        line = " ".join(str(error).split())[:160]
        raise InputError(
            f"The processor of the model in '{folder}' cannot be used ({line}); download it again, "
            f"or {ELSEWHERE}."
        ) from error


def _processor_name(folder: Path, config: Any) -> str | None:
    """Return the class of a checkpoint's processor."""
    from transformers.models.auto import processing_auto

    for file in (*PROCESSORS, "tokenizer_config.json"):
        try:
            data = json.loads((folder / file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict) and isinstance(data.get("processor_class"), str):
            return str(data["processor_class"])
    known: Any = processing_auto  # it exports nothing explicitly
    named: str | None = known.PROCESSOR_MAPPING_NAMES.get(config.model_type)
    return named


def without_videos(processor: Any) -> Any:
    """Return a class of processors that has no part for videos."""

    class ImagesOnly(processor):  # type: ignore[misc]
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in processor.get_attributes() if name != "video_processor"]

    ImagesOnly.__name__ = processor.__name__
    return ImagesOnly
