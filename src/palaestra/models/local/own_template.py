"""A checkpoint with a chat template of the user's: `NAME?template=FILE.jinja`.

The files stay where they are. A folder in the cache links to them, with the template beside, so
that everything that reads a checkpoint's folder finds it there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from palaestra.core.errors import InputError
from palaestra.core.paths import cache_folder
from palaestra.models.local.checkpoint_files import TEMPLATES
from palaestra.models.local.model_cache import storage_error


def with_template(folder: Path, template: Path) -> Path:
    """Return a folder like `folder` with another chat template.

    Raises:
        InputError: the template is not text, or the cache cannot be written.
        StorageFull: the disk is full.
    """
    try:
        text = template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"The chat template '{template}' cannot be read ({error}); give a text file."
        ) from error
    files = sorted(file.resolve() for file in folder.iterdir() if file.is_file())
    config = _config_without_template(folder / "tokenizer_config.json")
    identity = json.dumps([text, config, *map(str, files)])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    made = cache_folder() / "templates" / f"{template.stem}-{digest}"
    if made.is_dir() and all(file.exists() for file in made.iterdir()):
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=made.parent))
        for file in folder.iterdir():
            if file.is_file() and file.name not in (*TEMPLATES, "tokenizer_config.json"):
                (part / file.name).symlink_to(file.resolve())
        (part / "tokenizer_config.json").write_text(config, encoding="utf-8")
        (part / "chat_template.jinja").write_text(text, encoding="utf-8")
        shutil.rmtree(made, ignore_errors=True)
        part.rename(made)
    except OSError as error:
        raise storage_error(made, error) from error
    return made


def _config_without_template(file: Path) -> str:
    """Return a tokenizer's config without its own chat template, as JSON."""
    if not file.is_file():
        return "{}\n"
    config = json.loads(file.read_text(encoding="utf-8"))
    config.pop("chat_template", None)
    return json.dumps(config, indent=2) + "\n"
