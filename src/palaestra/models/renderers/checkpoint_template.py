"""The chat template of a checkpoint that speaks ChatML: whether it says more than ChatML does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.models.renderers.reply_parser import TAGS

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def template_of(
    folder: Path, vocabulary: Tokenizer, *, keep_thoughts: bool = False
) -> TemplateRenderer | None:
    """Return the renderer of a checkpoint whose chat template has tools or reasoning, else None.

    Args:
        folder: of the checkpoint.
        vocabulary: its `tokenizer.json`.
        keep_thoughts: see `TemplateRenderer`.
    """
    files = (folder / "tokenizer_config.json", *folder.glob("**/*.jinja"))
    sources = [file.read_text("utf-8", "replace") for file in files if file.is_file()]
    thinks = any(tags.close in source for tags in TAGS for source in sources)
    if not thinks and not any("tools" in source for source in sources):
        return None
    try:
        # With thoughts, the end of a prompt is decoded before each reply is parsed.
        template = None if thinks else _only_template(folder)
        if template is None or "_token" in template:  # it may write the name of a special token
            return TemplateRenderer.from_folder(folder, keep_thoughts=keep_thoughts)
        from palaestra.models.renderers.deferred_tokenizer import DeferredTokenizer

        tokenizer = DeferredTokenizer(folder, vocabulary, template)
        return TemplateRenderer(tokenizer, folder.name, keep_thoughts=keep_thoughts)
    except InputError:  # it has no usable template: tools are rendered as text
        return None


def _only_template(folder: Path) -> str | None:
    """Return the text of a checkpoint's chat template; None if it has several, or none."""
    config, files = folder / "tokenizer_config.json", list(folder.glob("**/*.jinja"))
    if files == [folder / "chat_template.jinja"] and config.is_file():
        return files[0].read_text("utf-8")
    try:
        template = None if files else json.loads(config.read_text("utf-8")).get("chat_template")
    except (OSError, ValueError):
        return None  # transformers says what is wrong with it
    return template if isinstance(template, str) else None
