"""The detection of a file's format by its content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.store.exchange.atif_import import read_atif
from palaestra.store.exchange.episode_schema import read_json
from palaestra.store.exchange.inspect_import import read_inspect
from palaestra.store.exchange.otel_import import read_otel
from palaestra.store.exchange.plain_json import read_bytes, read_documents
from palaestra.store.exchange.weblinx_import import read_weblinx
from palaestra.store.parquet import ParquetTrace


def read_parquet(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a Parquet file; raises like `ParquetTrace.open`."""
    trace = ParquetTrace.open(path)
    for phase in trace.phases():
        yield from trace.episodes(phase)


READERS = {
    "parquet": read_parquet,
    "inspect": read_inspect,
    "otel": read_otel,
    "atif": read_atif,
    "json": read_json,
    "weblinx": read_weblinx,
}


def read_episodes(path: Path, format: str) -> Iterator[Episode]:
    """Return an iterator over the episodes of a file in that format.

    Raises:
        UnknownName: the format does not exist.
        InputError: the file is missing, empty, truncated, or in another format.
        RunVersionMismatch: another version wrote it.
    """
    if format not in READERS:
        raise UnknownName("format", format, READERS)
    return READERS[format](Path(path))


def detect(path: Path) -> str:
    """Return the format of a file or folder, a name of READERS.

    Raises:
        InputError: it is missing, empty, or in none of the formats.
    """
    path = Path(path)
    if path.is_dir():
        if (path / "run.json").exists():
            raise InputError(f"{path} is a run already; use it as a RUN.")
        replays = (*path.glob("*/replay.json"), *path.glob("demonstrations/*/replay.json"))
        return "weblinx" if replays else "atif"
    if path.suffix == ".parquet":
        return "parquet"
    if read_bytes(path).startswith(b"PK"):
        return "inspect"
    first = next(read_documents(path), None)
    if isinstance(first, Mapping):
        if "resourceSpans" in first:
            return "otel"
        if "schema_version" in first:
            return "atif"
        if {"version", "eval"} <= first.keys():
            return "inspect"
        if {"key", "task", "outcome"} <= first.keys():
            return "json"
        if "messages" in first:
            raise InputError(
                f"{path} contains chats, which lack actions and rewards, so they are not "
                "episodes; import another format."
            )
    raise InputError(
        f"{path} is in none of the formats {', '.join(READERS)}; if it is, name the format "
        "with --format."
    )
