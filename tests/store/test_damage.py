"""A damaged run raises one clear error, and is never mistaken for another failure."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from palaestra.core.episode import Key
from palaestra.core.errors import DamagedRun, InputError
from palaestra.store import ranges
from palaestra.store.queries import Filter, Queries
from palaestra.store.run_folder import RunFolder
from palaestra.store.search_index import TextIndex
from tests.store import damaged, samples


def read_all(path: Path) -> None:
    """Ask a run everything that the store can be asked."""
    with RunFolder.read(path) as run:
        database = run.database
        database.get("recipe")
        database.documents("")
        for phase in database.phases():
            database.episodes(phase)
        database.metrics("rl")
        for summary in database.summaries():
            database.past(summary.key)
        database.past(Key("rl/3", 0))
        queries = Queries(database)
        queries.rows(queries.ids(Filter()).ids[:50].tolist())
        queries.standings()
        for summary in database.summaries("rl/1"):
            span = ranges.span_of(database, summary.key)
            assert span is not None
            ranges.turn_events(database, span, 1, 3)
            list(ranges.step_facts(database, span))
            list(ranges.call_facts(database, span))
        ranges.latest_steps(database, "rl/2")
        TextIndex(path).extend(database, seconds=60)


def test_all_of_a_sound_run_is_read(tmp_path: Path) -> None:
    read_all(damaged.make(tmp_path / "run"))


@pytest.mark.parametrize("seed", range(12))
def test_garbled_pages_are_reported_by_every_read(tmp_path: Path, seed: int) -> None:
    run = damaged.make(tmp_path / "run")
    damaged.garble(run, seed, pages=6)
    with pytest.raises(DamagedRun, match=rf"The run {run} is damaged: .*palaestra doctor {run}"):
        read_all(run)
    with pytest.raises(DamagedRun):
        RunFolder.open(run)


@pytest.mark.parametrize("seed", range(12))
def test_garbled_cells_raise_nothing_but_a_sentence(tmp_path: Path, seed: int) -> None:
    """Pages stay as they are; what they hold does not: texts, numbers, links between events."""
    run, rng = damaged.make(tmp_path / "run"), random.Random(seed)
    cells = {
        "event": ("body", "before", "logprobs", "prompt", "kind"),
        "episode": ("outcome", "task", "usage", "labels", "phase"),
        "record": ("last", "calls"),
        "document": ("body",),
        "metric": ("body", "step"),
    }
    with closing(sqlite3.connect(run / "run.sqlite")) as connection, connection:
        for _ in range(3):
            table = rng.choice(list(cells))
            column = rng.choice(cells[table])
            (count,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()
            rubbish = rng.choice(["[" * 9, 10**9, 3, -1, b"\x80\xff", "", "CAST(x'80' AS TEXT)"])
            bare = isinstance(rubbish, str) and rubbish.startswith("CAST")
            connection.execute(
                f"UPDATE OR IGNORE {table} SET {column} = {rubbish if bare else '?'}"
                f" WHERE rowid = {rng.randrange(1, count + 1)}",
                () if bare else (rubbish,),
            )
    with contextlib.suppress(DamagedRun):
        read_all(run)


def test_an_event_that_comes_before_itself_ends_the_reading(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    with closing(sqlite3.connect(run / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE event SET before = id WHERE id = 3")
    with pytest.raises(DamagedRun, match=r"not all 6 events of rl/1/0\.0"):
        read_all(run)


def test_a_part_of_an_episode_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    with closing(sqlite3.connect(run / "run.sqlite")) as connection, connection:
        connection.execute("DELETE FROM event WHERE id = 6")  # the last one of the first episode
    with RunFolder.read(run) as opened, pytest.raises(DamagedRun, match="not all 6 events"):
        opened.database.episode(Key("rl/1", 0))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def without_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        for table in ("episode", "event", "record"):
            connection.execute(f"DROP TABLE {table}")


def overwritten(file: Path) -> None:
    file.write_bytes(random.Random(0).randbytes(file.stat().st_size))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: 2 * damaged.PAGE + 100])


@pytest.mark.parametrize("break_it", [emptied, without_tables, overwritten, cut_short])
def test_what_is_left_of_a_database_is_never_taken_for_a_new_one(
    tmp_path: Path, break_it: Callable[[Path], None]
) -> None:
    run = damaged.make(tmp_path / "run")
    file = run / "run.sqlite"
    break_it(file)
    before = file.read_bytes()
    with pytest.raises(DamagedRun, match=f"palaestra doctor {run}"):
        RunFolder.open(run)
    with pytest.raises(DamagedRun, match=f"palaestra doctor {run}"):
        read_all(run)
    (run / "run.json").unlink()
    with pytest.raises(DamagedRun, match=f"palaestra doctor {run}"):
        RunFolder.create(run, {})
    assert file.read_bytes() == before


def test_no_new_run_is_started_over_one_that_lost_its_run_json(tmp_path: Path) -> None:
    run = damaged.make(tmp_path / "run")
    (run / "run.json").unlink()
    for opener in (RunFolder.read, RunFolder.open, lambda path: RunFolder.create(path, {})):
        with pytest.raises(DamagedRun, match=f"palaestra doctor {run}"):
            opener(run)
    assert not (run / "run.json").exists()


def test_a_database_of_something_else_is_no_damaged_run(tmp_path: Path) -> None:
    from palaestra.store.database import Database

    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, connection:
        connection.execute("CREATE TABLE mail (text)")
    with pytest.raises(InputError, match=r"other\.db cannot be read as the database of a run"):
        Database.open(tmp_path / "other.db", readonly=True)


def test_a_run_that_is_sound_is_taken_up(tmp_path: Path) -> None:
    with RunFolder.open(damaged.make(tmp_path / "run")) as run:
        run.database.finish(samples.episode(Key("rl/9", 0)))
