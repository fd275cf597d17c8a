"""The migration of a run from the previous format: in place and atomic.

Format 2 had messages of text and images in base64, and at most one image per observation, repeated
wherever it was seen. The content of episodes is unchanged: every token, word and pixel.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.core.message import Image
from palaestra.store import blobs
from palaestra.store.damage import decoding

BEFORE = "2"
"""The format that can be migrated."""

_ADD = "INSERT OR IGNORE INTO blob VALUES (?, ?)"


def migrate(file: Path, connection: sqlite3.Connection, format: str) -> None:
    """Migrate the database of a run from format 2 to `format`, in one transaction.

    Raises:
        DamagedRun: it contains something that is not format 2.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(blobs.SCHEMA)
        connection.execute("ALTER TABLE event ADD COLUMN tools TEXT")
        with decoding(file):
            _each(connection, "event", "kind, body", _event)
            _each(connection, "episode", "NULL, observation", _header)
        connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (format,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


Keep = Callable[[Image], None]


def _each(
    connection: sqlite3.Connection,
    table: str,
    columns: str,
    change: Callable[[Any, dict[str, Any], Keep], None],
) -> None:
    """Change the JSON in the second column of each row."""

    def keep(image: Image) -> None:
        connection.execute(_ADD, (image.sha256, image.data))

    column = columns.rpartition(" ")[2]
    for (number,) in connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall():
        row = connection.execute(f"SELECT {columns} FROM {table} WHERE id = ?", (number,))
        kind, body = row.fetchone()
        if body is None:
            continue
        document = json.loads(body)
        change(kind, document, keep)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (text, number))


def _event(kind: str, event: dict[str, Any], keep: Keep) -> None:
    if kind == "step":
        _header(None, event["transition"]["observation"], keep)
        return
    event["messages"] = [_message(message, keep) for message in event["messages"]]
    event["reply"] = _message(event["reply"], keep)


def _header(_: object, observation: dict[str, Any], keep: Keep) -> None:
    image_base64 = observation.pop("image", "")
    observation["images"] = [_image(image_base64, keep)] if image_base64 else []


def _message(message: dict[str, Any], keep: Keep) -> dict[str, Any]:
    text_parts = [{"text": message["content"], "type": "text"}] if message["content"] else []
    image_parts = [_image(image_base64, keep) for image_base64 in message.get("images", ())]
    return {"role": message["role"], "parts": [*text_parts, *image_parts]}


def _image(image_base64: str, keep: Keep) -> dict[str, Any]:
    """Return an image in base64 as a message part."""
    try:
        image = Image.of(b64decode(image_base64))
    except InputError as error:
        raise ValueError(str(error)) from error
    keep(image)
    about = {"sha256": image.sha256, "media_type": image.media_type, "size": image.size}
    return {**about, "type": "image"}
