"""`palaestra export`: write recorded episodes to a file for other programs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError, UnknownName

if TYPE_CHECKING:
    from palaestra.core.episode import Episode
    from palaestra.training.trace import Recorded

EXAMPLE = "palaestra export runs/quick-20260101-120000 --phase rl/3 --to trace.parquet"
ENDINGS = {
    "parquet": (".parquet",),
    "inspect": (".eval", ".json"),
    "otel": (".jsonl",),
    "atif": (".jsonl", ""),
    "chat": (".jsonl",),
    "json": (".jsonl",),
    "weblinx": ("",),
}
"""File name endings of each format; folders have none."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or name, or its run.sqlite")
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="e.g. rl/3, or rl for all that start with rl/; may be repeated (default: all phases)",
    )  # fmt: skip
    parser.add_argument(
        "--format", default="parquet", metavar="NAME",
        help="parquet (the default), inspect, otel, atif, chat, json or weblinx",
    )  # fmt: skip
    parser.add_argument("--solved", action="store_true", help="only solved episodes")
    parser.add_argument(
        "--won", metavar="PLAYER",
        help="only games in which that player's return is above 0; a game has no success",
    )  # fmt: skip
    parser.add_argument(
        "--conventions", metavar="VERSION",
        help="of OpenTelemetry's GenAI conventions, for otel: 1.36 or 1.41 (the default)",
    )  # fmt: skip
    parser.add_argument("--to", required=True, metavar="FILE", help="the file or folder to write")


def run(options: argparse.Namespace) -> int:
    file = Path(options.to)
    _check(file, options.format, options.conventions)
    from palaestra.store.disk import readable_size
    from palaestra.training.trace import open_recorded

    recorded, folder = open_recorded(options.run)
    try:
        phases = choose(recorded.phases(), options.phases)
        start = _start(folder, options.run)
        chosen = _chosen(recorded, phases, options.solved, options.won, options.run)
        count = _write(recorded, chosen, start, options)
    finally:
        recorded.close()
    named = ", ".join(phases) if len(phases) <= 3 else f"{len(phases)} phases"
    what = "conversations" if options.format == "chat" else "episodes"
    parts = file.rglob("*") if file.is_dir() else [file]
    size = sum(part.stat().st_size for part in parts if part.is_file())
    print(f"{count} {what} of {named} in {file} ({readable_size(size)})")
    return 0


def choose(known: list[str], wanted: list[str]) -> list[str]:
    """Return the wanted phases in the order of the record; by default all.

    Raises:
        UnknownName: no phase has that name or prefix.
        InputError: the run has no phases.
    """
    if not known:
        raise InputError("The run has no finished episodes yet; wait for one, or name another run.")
    found = set(known if not wanted else ())
    for name in wanted:
        matching = [p for p in known if p == name or p.startswith(f"{name}/")]
        if not matching:
            raise UnknownName("phase", name, known)
        found.update(matching)
    return [phase for phase in known if phase in found]


def _check(file: Path, format: str, conventions: str | None) -> None:
    if format not in ENDINGS:
        raise UnknownName("format", format, ENDINGS)
    if file.suffix not in ENDINGS[format]:
        ends = " or ".join(ending or "nothing (a folder)" for ending in ENDINGS[format])
        raise InputError(f"--to {file} does not fit {format}; its name must end in {ends}.")
    if format == "weblinx" and file.exists():
        raise InputError(f"{file} exists already; give a new folder to --to.")
    if conventions is not None and format != "otel":
        raise InputError(
            f"--conventions has no effect with --format {format}; use --format otel, or drop it."
        )


def _write(
    recorded: Recorded, episodes: Iterator[Episode], start: datetime, options: argparse.Namespace
) -> int:
    file = Path(options.to)
    if options.format == "parquet":
        from palaestra.store.parquet import write_parquet
        from palaestra.training.trace import documents

        return write_parquet(file, episodes, documents(recorded))
    if options.format == "inspect":
        from palaestra.store.exchange.inspect_log import write_inspect

        return write_inspect(file, episodes, start)
    if options.format == "otel":
        from palaestra.store.exchange.otel import NEWEST, write_otel

        return write_otel(file, episodes, start, options.conventions or NEWEST)
    if options.format == "weblinx":
        from palaestra.environments.registry import make
        from palaestra.evaluation.running.shown_demonstrations import shown_episodes
        from palaestra.store.exchange.weblinx_export import write_weblinx

        return write_weblinx(file, shown_episodes(episodes, make))
    from palaestra.store.exchange.atif import write_atif
    from palaestra.store.exchange.chat_jsonl import write_chat
    from palaestra.store.exchange.episode_schema import write_json

    return {"atif": write_atif, "chat": write_chat, "json": write_json}[options.format](
        file, episodes
    )


def _start(folder: Path | None, name: str) -> datetime:
    """Return the start of the run; for a lone database, when it was last written."""
    if folder is None:
        return datetime.fromtimestamp(Path(name).expanduser().stat().st_mtime, UTC)
    from palaestra.store.run_folder import RunFolder

    with RunFolder.read(folder) as opened:
        return opened.record.created


def _chosen(
    recorded: Recorded, phases: list[str], solved: bool, won: str | None, run: str
) -> Iterator[Episode]:
    """Return the episodes to write.

    Raises:
        InputError: solved ones of a game are wanted, or ones that a player won who does not play.
    """
    from palaestra.evaluation.statistics.player_results import has_success

    if solved or won is not None:
        players = {
            (episode.task.environment, *episode.results)
            for phase in phases
            for episode in recorded.episodes(phase)
        }
        for environment, *names in players if solved else ():
            if not has_success(environment, names):
                raise InputError(
                    f"'{environment}' is a game between players, in which no episode is solved; "
                    f"give --won PLAYER in place of --solved, with one of {', '.join(names)}."
                )
        known = {name for _, *names in players for name in names}
        if won is not None and not known:
            raise InputError(f"'{run}' has no games of several players; drop --won {won}.")
        if won is not None and won not in known:
            raise UnknownName("player", won, known)
    return (
        episode
        for phase in phases
        for episode in recorded.episodes(phase)
        if (episode.outcome.solved or not solved)
        and (won is None or (episode.outcome.scored and episode.results.get(won, 0.0) > 0))
    )
