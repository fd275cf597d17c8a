"""Files of a world's applications: uploads lie in its database, pictures of goods are drawn.

Django names these classes in its configuration (`django_settings.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import Storage
from django.db import connection

TABLE = "uploaded_file"  # (name, content), as `django_server.py` makes it


class DatabaseStorage(Storage):
    """Files in a table of the world's database, so that they are saved and compared with it."""

    def _open(self, name: str, mode: str = "rb") -> ContentFile[bytes]:
        return ContentFile(self._read(name), name)

    def _save(self, name: str, content: Any) -> str:
        self._run(f"INSERT INTO {TABLE} VALUES (%s, %s)", name, content.read())
        return name

    def delete(self, name: str) -> None:
        self._run(f"DELETE FROM {TABLE} WHERE name = %s", name)

    def exists(self, name: str) -> bool:
        return bool(self._run(f"SELECT 1 FROM {TABLE} WHERE name = %s", name))

    def size(self, name: str) -> int:
        return len(self._read(name))

    def url(self, name: str | None) -> str:
        return f"/media/{name}"

    def _read(self, name: str) -> bytes:
        found = self._run(f"SELECT content FROM {TABLE} WHERE name = %s", name)
        if not found:
            raise FileNotFoundError(name)
        return bytes(found[0][0])

    def _run(self, statement: str, *values: object) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class _Picture:
    url: str


class WholePictures:
    """The shop's thumbnails: the pictures themselves, which are small."""

    def generate_thumbnail(self, source: Any, **options: Any) -> _Picture:
        name = getattr(source, "name", source)
        return _Picture(f"/media/{name}")

    def delete_thumbnails(self, source: Any) -> None:
        """Nothing is kept, so nothing goes."""
