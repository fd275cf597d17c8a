"""The tokenizer of a GGUF file as Hugging Face files.

transformers reads tokens, merges and special tokens. How text is split into words before merging
is only a name in the file (`tokenizer.ggml.pre`), and transformers ignores names that it does not
know; so they are defined here, and others are refused: their tokens would not be the model's.
Sources: llama.cpp's `llama-vocab.cpp`, and the `tokenizer.json` files of the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class Split:
    """How text is cut into words, within which tokens are merged."""

    pattern: str | None = None  # None: GPT-2's
    digits: bool = False  # each digit is a word
    compose: bool = False  # text is normalised to NFC first
    whole_words: bool = False  # a word that is a token is not merged from parts


GPT2, DIGITS = Split(), Split(digits=True)
LLAMA3 = Split(_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _REST, whole_words=True)
QWEN2 = Split(_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _REST, compose=True)
SPLITS = {
    "gpt-2": GPT2,
    "olmo": GPT2,
    "smollm": DIGITS,
    "starcoder": DIGITS,
    "refact": DIGITS,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
}
"""By `tokenizer.ggml.pre`, for byte-level vocabularies."""


def check_tokenizer(metadata: Mapping[str, Any]) -> None:
    """Raise InputError unless the file has a tokenizer that can be rebuilt exactly."""
    model = metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        what = f"its tokenizer is of the kind '{model}'" if model else "it has no tokenizer"
        raise InputError(f"{what}, which cannot be read; use the model's Hugging Face checkpoint")
    split = metadata.get("tokenizer.ggml.pre")
    if model == "gpt2" and split not in SPLITS:
        raise InputError(
            f"its tokenizer splits text as '{split}', which is not known here; use the model's "
            "Hugging Face checkpoint"
        )


def write_tokenizer(source: Path, metadata: Mapping[str, Any], context: int, folder: Path) -> None:
    """Write the tokenizer and the chat template of the GGUF file `source` into `folder`."""
    from transformers import AutoTokenizer

    check_tokenizer(metadata)
    tokenizer = AutoTokenizer.from_pretrained(
        source.parent, gguf_file=source.name, local_files_only=True
    )
    if metadata["tokenizer.ggml.model"] == "gpt2":
        _split(tokenizer.backend_tokenizer, SPLITS[metadata["tokenizer.ggml.pre"]])
    tokenizer.model_max_length = context
    tokenizer.save_pretrained(folder)


def _split(tokenizer: Tokenizer, how: Split) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    steps: list[Any] = []
    if how.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if how.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(how.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=how.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.normalizer = normalizers.NFC() if how.compose else None
    tokenizer.model.ignore_merges = how.whole_words
