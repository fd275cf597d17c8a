"""Archives of Inspect: ZIP files whose members may be compressed with Zstandard.

Python before 3.14 cannot read such members; pyarrow, which Parquet files need as well, can.
"""

from __future__ import annotations

import importlib
import json
import struct
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from palaestra.core.errors import InputError, MissingPackage

ZSTANDARD = 93  # the number of the method in a ZIP archive
LOCAL = struct.Struct("<26xHH")  # a member's own header, up to the lengths of name and extra


class Archive:
    """The members of an archive, each a JSON document."""

    def __init__(self, path: Path, archive: ZipFile) -> None:
        """Use `Archive.open`."""
        self.path = path
        self._archive = archive

    @classmethod
    def open(cls, path: Path) -> Archive:
        """Open an archive.

        Raises:
            InputError: it is not an archive, or is truncated.
        """
        try:
            return cls(path, ZipFile(path))
        except (BadZipFile, OSError) as error:
            raise InputError(
                f"{path} is not a complete archive ({error}); copy it again, or repair it with "
                "`inspect log recover`."
            ) from error

    def names(self) -> list[str]:
        """Return the names of the members, in order."""
        return self._archive.namelist()

    def document(self, name: str) -> Any:
        """Return the JSON of one member.

        Raises:
            InputError: it is damaged, or not JSON.
            MissingPackage: reading it needs pyarrow.
        """
        info = self._archive.getinfo(name)
        try:
            packed = info.compress_type == ZSTANDARD
            return json.loads(self._unpacked(info) if packed else self._archive.read(info))
        except (BadZipFile, OSError, ValueError, struct.error, zlib.error) as error:
            raise InputError(
                f"{self.path} is damaged: {name} cannot be read ({error}); copy it again."
            ) from error

    def close(self) -> None:
        self._archive.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _unpacked(self, info: ZipInfo) -> bytes:
        try:
            arrow: Any = importlib.import_module("pyarrow")
        except ImportError as error:
            raise MissingPackage(
                f"{self.path} is compressed with Zstandard, which needs the Python package "
                "'pyarrow'; install it with: pip install 'palaestra[analysis]'."
            ) from error
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            name, extra = LOCAL.unpack(file.read(LOCAL.size))
            file.seek(name + extra, 1)
            packed = file.read(info.compress_size)
        with arrow.input_stream(arrow.py_buffer(packed), compression="zstd") as stream:
            unpacked: bytes = stream.read()
        return unpacked
