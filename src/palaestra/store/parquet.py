"""Episodes as a Parquet file, for analysis with other tools and lossless re-import.

One row per episode. The plain columns (`environment`, `solved`, `reward`, `turns` …)
are for queries; the `raw_` columns hold the whole episode, in the form of `codec.py`. `players` has
the result of each of several players, and why it forfeited if it did; `solved` is then the first's.
The run's documents and the format's version are in the schema's metadata.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from palaestra import __version__
from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import InputError, MissingPackage
from palaestra.store.codec import JSON, EventRow, decode_events, encode_event
from palaestra.store.disk import replacing_file
from palaestra.store.header import events_in_order, header_row, rebuilt
from palaestra.store.schema import FORMAT, check_format

ROWS = 512  # episodes in memory at once during writing
METADATA = b"palaestra"
KEY = ("phase", "group", "member")
HEADER = ("task", "agent", "observation", "outcome", "usage", "progress", "labels")
"""The first columns of `header_row` after the key."""


class ParquetTrace:
    """The episodes of a Parquet file that `write_parquet` wrote."""

    def __init__(self, path: Path, documents: Mapping[str, JSON]) -> None:
        """Use `ParquetTrace.open`."""
        self.path = path
        self._documents = documents

    @classmethod
    def open(cls, path: Path) -> ParquetTrace:
        """Open a file and check its metadata.

        Raises:
            MissingPackage: pyarrow is not installed.
            InputError: the file does not exist, or contains no episodes of palaestra.
            RunVersionMismatch: it was written in another format.
        """
        path = Path(path)
        parquet = _arrow("pyarrow.parquet")
        try:
            metadata = parquet.read_schema(path).metadata or {}
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            raise InputError(
                f"{path} cannot be read as a Parquet file: {error}. Check the path."
            ) from error
        if METADATA not in metadata:
            raise InputError(
                f"{path} contains no episodes of palaestra; `palaestra export` writes such files."
            )
        about = json.loads(metadata[METADATA])
        check_format(path, about["format"], about["palaestra"])
        return cls(path, about["documents"])

    def phases(self) -> list[str]:
        """Return the phases with episodes, in the order of the file."""
        column = _arrow("pyarrow.parquet").read_table(self.path, columns=["phase"])
        return list(dict.fromkeys(column["phase"].to_pylist()))

    def episodes(self, phase: str) -> list[Episode]:
        """Return the episodes of exactly that phase, ordered by group and member."""
        columns = [*KEY, *(f"raw_{name}" for name in HEADER), "raw_events"]
        table = _arrow("pyarrow.parquet").read_table(
            self.path, columns=columns, filters=[("phase", "==", phase)]
        )
        rows = sorted(
            zip(*(table[name].to_pylist() for name in columns), strict=True),
            key=lambda row: row[1:3],
        )
        happened = [[EventRow(**event) for event in row[-1]] for row in rows]
        events = iter(decode_events([event for found in happened for event in found]))
        by_key: dict[Key, list[Event]] = {}
        for row, found in zip(rows, happened, strict=True):
            by_key[Key(*row[:3])] = list(islice(events, len(found)))
        return rebuilt([row[:-1] for row in rows], by_key)

    def get(self, name: str) -> JSON | None:
        """Return the run's document of that name, or None."""
        return self._documents.get(name)

    def close(self) -> None:
        """Do nothing: no file is held open."""


def write_parquet(
    path: Path, episodes: Iterable[Episode], documents: Mapping[str, JSON] | None = None
) -> int:
    """Write episodes to a new file, which replaces one of the same name once it is complete.

    Args:
        path: the file.
        episodes: an iterable, read once; their keys differ.
        documents: JSON values by name; `ParquetTrace.get` returns them.

    Returns:
        the number of episodes.

    Raises:
        MissingPackage: pyarrow is not installed.
        InputError: the folder does not exist, or cannot be written to.
        StorageFull: there is no space; an earlier file of that name is intact.
    """
    path = Path(path)
    arrow, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    about = {"format": str(FORMAT), "palaestra": __version__, "documents": dict(documents or {})}
    schema = _schema(arrow).with_metadata({METADATA: json.dumps(about).encode()})
    count = 0
    with (
        replacing_file(path) as partial,
        partial.open("wb") as stream,
        parquet.ParquetWriter(stream, schema, compression="zstd") as writer,
    ):
        for batch in _batches(episodes, ROWS):
            rows = [_row(episode) for episode in batch]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            count += len(batch)
    return count


# ── details ──────────────────────────────────────────────────────────────────


def _row(episode: Episode) -> dict[str, Any]:
    header = header_row(episode)
    raw = dict(zip(HEADER, header[len(KEY) :], strict=False))
    return {
        **dict(zip(KEY, header, strict=False)),
        "environment": episode.task.environment,
        "task": episode.task.id,
        "split": str(episode.task.split),
        "agent": episode.agent,
        "status": str(episode.outcome),
        "solved": episode.outcome.solved,
        "scored": episode.outcome.scored,
        "reward": float(episode.reward),
        "progress": episode.progress,
        "turns": episode.usage.turns,
        "invalid_turns": episode.invalid_turns,
        "prompt_tokens": episode.usage.prompt_tokens,
        "sampled_tokens": episode.usage.sampled_tokens,
        "seconds": episode.usage.seconds,
        "players": _players(episode) or None,
        **{f"raw_{name}": value for name, value in raw.items()},
        "raw_events": [_row_of(event) for event in events_in_order(episode)],
    }


def _players(episode: Episode) -> list[dict[str, Any]]:
    """Return the result of each of several players; empty for a single player."""
    return [
        {
            "player": player,
            "return": float(one.total),
            "turns": one.turns,
            "invalid_turns": one.invalid_actions,
            "forfeit": str(one.outcome) if one.forfeited else None,
        }
        for player, one in episode.players.items()
    ]


def _row_of(event: Event) -> dict[str, Any]:
    """Return an event as a row that includes the bytes of its images and its tools."""
    row = encode_event(event)._asdict()
    del row["tools"]
    return row


def _schema(arrow: Any) -> Any:
    text, integer, real, flag = arrow.string(), arrow.int64(), arrow.float64(), arrow.bool_()
    packed = ("prompt", "completion", "logprobs")
    player = [
        *(("player", text), ("return", real), ("turns", integer), ("invalid_turns", integer)),
        ("forfeit", text),
    ]
    event = [("kind", text), ("body", text), *((name, arrow.binary()) for name in packed)]
    return arrow.schema(
        [
            *zip(KEY, (text, integer, integer), strict=True),
            *((name, text) for name in ("environment", "task", "split", "agent", "status")),
            *((name, flag) for name in ("solved", "scored")),
            *((name, real) for name in ("reward", "progress")),
            *((name, integer) for name in ("turns", "invalid_turns")),
            *((name, integer) for name in ("prompt_tokens", "sampled_tokens")),
            ("seconds", real),
            ("players", arrow.list_(arrow.struct(player))),
            *((f"raw_{name}", text) for name in HEADER),
            ("raw_events", arrow.list_(arrow.struct(event))),
        ]
    )


def _batches(episodes: Iterable[Episode], size: int) -> Iterator[Sequence[Episode]]:
    rest = iter(episodes)
    while batch := list(islice(rest, size)):
        yield batch


def _arrow(module: str) -> Any:
    """Import a module of pyarrow, a large optional dependency that only these files need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(
            "Parquet files need the Python package 'pyarrow', which is not installed; install it "
            "with: pip install 'palaestra[analysis]'."
        ) from error
