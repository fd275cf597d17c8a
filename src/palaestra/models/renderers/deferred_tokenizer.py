"""A tokenizer that transformers reads only when a text is to be encoded with it.

A large vocabulary takes transformers a second to read. Whether a chat template has tools, and how
replies are parsed, its text and the control tokens alone say.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from palaestra.core.errors import InputError


class DeferredTokenizer(PreTrainedTokenizerBase):
    """The tokenizer of a checkpoint: template and control tokens now, the rest when needed."""

    def __init__(self, folder: Path, vocabulary: Tokenizer, template: str) -> None:
        """Read no more than `tokenizer_config.json`.

        Args:
            folder: of the checkpoint.
            vocabulary: its `tokenizer.json`; only its tokens and their ids are used.
            template: a chat template that renders without the names of special tokens.
        """
        names = {
            key: value
            for key, value in json.loads((folder / "tokenizer_config.json").read_text()).items()
            if key in self.SPECIAL_TOKENS_ATTRIBUTES and isinstance(value, str)
        }
        super().__init__(chat_template=template, **names)  # type: ignore[no-untyped-call]
        self._folder, self._vocabulary = folder, vocabulary

    @cached_property
    def _whole(self) -> PreTrainedTokenizerBase:
        return read_tokenizer(self._folder)

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return dict(self._vocabulary.get_added_tokens_decoder())

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if isinstance(tokens, str):
            return self._vocabulary.token_to_id(tokens)
        return [self._vocabulary.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        if isinstance(ids, int):
            return self._vocabulary.id_to_token(ids)
        return self._whole.convert_ids_to_tokens(ids, skip_special_tokens)

    def encode(self, *args: Any, **kwargs: Any) -> list[int]:
        return self._whole.encode(*args, **kwargs)

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        return self._whole.decode(*args, **kwargs)


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the checkpoint in `folder`, as transformers reads it.

    Raises:
        InputError: there is no readable one.
    """
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"The folder '{folder}' has no readable tokenizer ({reason}); save one "
            "there with save_pretrained."
        ) from error
    return found
