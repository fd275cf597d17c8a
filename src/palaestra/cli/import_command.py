"""`palaestra import`: make a run of episodes that other programs recorded."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.core.episode import Key

EXAMPLE = "palaestra import logs/2026-01-01_sums.eval --run runs/sums"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a log of Inspect, ATIF (or a folder of it), OTLP, Parquet, JSON, a folder of WebLINX",
    )
    parser.add_argument("--run", required=True, metavar="FOLDER", help="the new run")
    parser.add_argument(
        "--format", metavar="NAME",
        help="inspect, atif, otel, parquet, json or weblinx (default: detected)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    from palaestra.store.exchange.detect import detect, read_episodes
    from palaestra.store.run_folder import RunFolder

    source, folder = Path(options.file).expanduser(), Path(options.run)
    format = options.format or detect(source)
    if folder.exists():
        raise InputError(f"{folder} exists already; give a new folder to --run.")
    episodes = read_episodes(source, format)
    seen: set[Key] = set()
    try:
        with RunFolder.create(folder, _recipe(source, format)) as made:
            for episode in episodes:
                if episode.key in seen:
                    raise InputError(
                        f"{source} holds two episodes with the key {episode.key}; import "
                        "its parts one by one."
                    )
                seen.add(episode.key)
                made.database.finish(episode)
            if not seen:
                raise InputError(f"{source} holds no episodes; choose another file.")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(f"{len(seen)} episodes ({format}) in {folder}; `palaestra show {folder}` shows them")
    return 0


def _recipe(source: Path, format: str) -> dict[str, Any]:
    """Return the recipe of the new run: the original one, if the file has it."""
    origin = {"imported": {"file": source.name, "format": format}}
    if format != "parquet":
        return origin
    from palaestra.store.parquet import ParquetTrace

    return {**(ParquetTrace.open(source).get("recipe") or {}), **origin}
