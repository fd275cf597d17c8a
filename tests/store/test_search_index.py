"""The index of words: beside the run, made bit by bit, and never wrong about what it holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.store.database import Database
from palaestra.store.queries import Filter, Queries
from palaestra.store.search_index import Extent, TextIndex
from tests.viewer.stores import plain


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "run.sqlite")


def found(path: Path, database: Database, *words: str) -> list[Key]:
    rows = Queries(database).rows(TextIndex(path).find(words))
    return [row.summary.key for row in rows]


def test_words_phrases_and_beginnings_are_found(tmp_path: Path, database: Database) -> None:
    keys = [Key("p", n) for n in range(3)]
    database.finish(plain(keys[0], saw="a red key", did="pick up"))
    database.finish(plain(keys[1], saw="a key, red", did="drop it"))
    database.finish(plain(keys[2], saw="Größe keyboard", did='say "OR"'))
    index = TextIndex(tmp_path)
    assert index.find(["key"]) == []
    assert index.extend(database, seconds=10) == Extent(3, 3)
    assert found(tmp_path, database, "key", "red") == keys[:2]
    assert found(tmp_path, database, "red key") == keys[:1]
    assert found(tmp_path, database, "key*") == keys
    assert found(tmp_path, database, "GRÖSSE*") == [] and found(tmp_path, database, "größe")
    assert found(tmp_path, database, "drop") == [keys[1]]
    for odd in ('"', "OR", "NEAR(a", "*", "\x00", "a:b", "\ud800"):
        TextIndex(tmp_path).find([odd])


def test_episodes_that_finish_or_run_again_later_are_added(
    tmp_path: Path, database: Database
) -> None:
    index = TextIndex(tmp_path)
    database.finish(plain(Key("p", 0), saw="first"))
    database.finish(plain(Key("p", 1), saw="other"))
    index.extend(database, seconds=10)
    database.forget(Key("p", 0))
    database.finish(plain(Key("p", 0), saw="second"))
    database.finish(plain(Key("p", 2), saw="first"))
    assert index.extend(database, seconds=10) == Extent(3, 3)
    assert found(tmp_path, database, "first") == [Key("p", 2)]
    assert found(tmp_path, database, "second") == [Key("p", 0)]


def test_an_index_is_made_bit_by_bit(tmp_path: Path, database: Database) -> None:
    for number in range(30):
        database.finish(plain(Key("p", number), saw="same"))
    extents = []
    while not (extents and extents[-1].whole):
        extents.append(TextIndex(tmp_path).extend(database, seconds=0.0))
    counts = [extent.indexed for extent in extents]
    assert counts == sorted(counts) and counts[-1] == 30 and len(counts) > 1
    assert len(found(tmp_path, database, "same")) == 30


def test_indexing_reports_its_progress(tmp_path: Path, database: Database) -> None:
    for number in range(450):
        database.finish(plain(Key("p", number)))
    shown: list[Extent] = []
    assert TextIndex(tmp_path).extend(database, progress=shown.append) == Extent(450, 450)
    assert shown == [Extent(0, 450), Extent(200, 450), Extent(400, 450)]


def test_the_index_is_no_part_of_the_run(tmp_path: Path, database: Database) -> None:
    database.finish(plain(Key("p", 0)))
    before = {row[0] for row in database._connection.execute("SELECT name FROM sqlite_master")}
    TextIndex(tmp_path).extend(database, seconds=10)
    after = {row[0] for row in database._connection.execute("SELECT name FROM sqlite_master")}
    assert before == after
    for file in tmp_path.glob("search*"):
        file.unlink()
    assert TextIndex(tmp_path).extend(database, seconds=10).whole


def test_numbers_that_are_not_finite_stop_no_search(tmp_path: Path, database: Database) -> None:
    made = plain(Key("p", 0), saw="strange")
    bad = replace(made.steps[0].transition, reward=float("nan"))
    database.finish(replace(made, steps=(replace(made.steps[0], transition=bad), *made.steps[1:])))
    TextIndex(tmp_path).extend(database, seconds=10)
    assert found(tmp_path, database, "strange") == [Key("p", 0)]
    assert len(Queries(database).ids(Filter()).ids) == 1


def test_a_file_that_is_no_index_is_named(tmp_path: Path, database: Database) -> None:
    (tmp_path / "search-1.sqlite").write_bytes(b"something else entirely" * 200)
    with pytest.raises(InputError, match="Delete it"):
        TextIndex(tmp_path).extend(database, seconds=1)
    with pytest.raises(InputError, match="Delete it"):
        TextIndex(tmp_path).find(["x"])
