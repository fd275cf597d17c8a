"""The episode as JSON, and its published schema.

A file contains one episode per line, or a single one. Each has its version (`format`), so
that a later palaestra recognises it; `palaestra show RUN EPISODE --json` prints the same
without it. The schema is generated from the types: a test compares the published file,
docs/schema, with the output of `python -m palaestra.store.exchange.episode_schema`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.store.codec import JSON
from palaestra.store.exchange.invalid_documents import understood
from palaestra.store.exchange.plain_json import (
    built,
    check_version,
    plain,
    read_documents,
    write_lines,
)
from palaestra.store.schema import FORMAT

NAME = f"episode-{FORMAT}.json"  # of the published file, in docs/schema
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def episode_schema() -> dict[str, Any]:
    """Return the JSON schema of `episode_document` (draft 2020-12)."""
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    from palaestra.store.shapes import tagged

    made = tagged(TypeAdapter(Episode).core_schema, external_images=False)
    schema = GenerateJsonSchema().generate(made, mode="serialization")
    schema["properties"] = {
        "format": {"const": FORMAT, "title": "Format", "description": "Version of this form."},
        **schema["properties"],
    }
    schema["required"] = ["format", *schema["required"]]
    return {
        "$schema": DIALECT,
        "$id": NAME,
        **schema,
        "title": "palaestra episode",
    }


def schema_text() -> str:
    """Return the text of the published schema."""
    return json.dumps(episode_schema(), indent=2) + "\n"


def episode_document(episode: Episode) -> dict[str, JSON]:
    """Return an episode as a JSON document."""
    return {"format": FORMAT, **plain(episode)}


def episode_of(document: JSON, where: str) -> Episode:
    """Return the episode of a document, with or without its `format`.

    Raises:
        InputError: it is not an episode.
        RunVersionMismatch: another version wrote it.
    """
    if not isinstance(document, Mapping) or not {"key", "task", "outcome"} <= document.keys():
        raise InputError(
            f"{where} is not an episode of palaestra; `palaestra export --format json` writes them."
        )
    if "format" in document:
        check_version(document["format"], where)
    with understood(where, "episode of palaestra"):
        episode: Episode = built(Episode, document)
    return episode


def write_json(path: Path, episodes: Iterable[Episode]) -> int:
    """Write one episode per line; return their number.

    Raises:
        InputError: the folder is missing, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    return write_lines(path, (episode_document(episode) for episode in episodes))


def read_json(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a file.

    Raises:
        InputError: the file does not exist, or contains something else.
        RunVersionMismatch: another version wrote it.
    """
    for number, document in enumerate(read_documents(path), 1):
        yield episode_of(document, f"{path}, line {number}")


if __name__ == "__main__":
    print(schema_text(), end="")
