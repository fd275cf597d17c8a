"""A site's database is opened from a template, compared to it by rows, and saved as pages."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.environments.families.apps.composing.verifier import same_answer
from palaestra.environments.families.real_sites.site_database import (
    SiteDatabase,
    SiteTemplate,
    opened,
)
from palaestra.environments.families.real_sites.task_template import comparable, inserted

Write = tuple[str, int, str]
writes = st.lists(
    st.tuples(st.sampled_from(("insert", "update", "delete")), st.integers(1, 40), st.text()),
    max_size=12,
)


def template() -> SiteTemplate:
    connection = opened(b"")
    connection.execute("CREATE TABLE shelf (id INTEGER PRIMARY KEY AUTOINCREMENT, place TEXT)")
    connection.execute(
        "CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, shelf_id INTEGER "
        "REFERENCES shelf (id), lent_at datetime)"
    )
    connection.execute("INSERT INTO shelf VALUES (1, 'hall'), (2, 'attic')")
    for id in range(1, 31):
        connection.execute("INSERT INTO book VALUES (?, ?, 1, NULL)", (id, f"Book {id}" * 20))
    return SiteTemplate.of("library", connection)


TEMPLATE = template()


def do(database: SiteDatabase, write: Write) -> None:
    kind, id, title = write
    if kind == "insert":
        statement = "INSERT OR IGNORE INTO book (id, title) VALUES (?, ?)"
        database.connection.execute(statement, (id, title))
    elif kind == "update":
        database.connection.execute("UPDATE book SET title = ? WHERE id = ?", (title, id))
    else:
        database.connection.execute("DELETE FROM book WHERE id = ?", (id,))


def test_columns_say_what_they_refer_to_and_which_times_the_application_sets() -> None:
    columns = TEMPLATE.columns["library.book"]
    assert columns["shelf_id"].refers == "shelf"
    assert columns["lent_at"].by == "service"
    assert columns["title"].by == "person"
    assert "id" not in columns


def test_nothing_differs_in_the_beginning_and_little_is_saved() -> None:
    database = SiteDatabase(TEMPLATE)
    assert database.differences() == ()
    assert len(database.save()) < 100


@given(writes)
@settings(max_examples=60, deadline=None)
def test_differences_are_those_of_the_rows(all: list[Write]) -> None:
    database = SiteDatabase(TEMPLATE)
    before = {row["id"]: row for row in database.rows("library.book")}
    for write in all:
        do(database, write)
    after = {row["id"]: row for row in database.rows("library.book")}
    found = {one.id: (one.before, one.after) for one in database.differences()}
    ids = before.keys() | after.keys()
    assert found == {
        id: (before.get(id), after.get(id)) for id in ids if before.get(id) != after.get(id)
    }


@given(writes, writes)
@settings(max_examples=60, deadline=None)
def test_what_was_saved_comes_back_and_goes_on_equally(
    first: list[Write], then: list[Write]
) -> None:
    database, other = SiteDatabase(TEMPLATE), SiteDatabase(TEMPLATE)
    for write in first:
        do(database, write)
    saved, key = database.save(), database.key()
    for write in then:
        do(other, write)
    other.load(saved)
    assert other.key() == key
    assert other.differences() == database.differences()
    for write in then:
        do(database, write)
        do(other, write)
    assert other.key() == database.key()


def test_a_wanted_row_leaves_open_what_it_does_not_state() -> None:
    wanted = [inserted("library.book", title="A")]
    found = comparable([inserted("library.book", id=9, title="A", shelf_id=2)], wanted)
    assert [one.values for one in found] == [{"id": 9, "title": "A"}]
    untouched = [inserted("library.shelf", id=3, place="cellar")]
    assert comparable(untouched, wanted) == untouched


def test_a_set_is_answered_in_any_order_and_wholly() -> None:
    wanted = frozenset({"Oak Table", "Mug"})
    assert same_answer("mug, oak table", wanted)
    assert same_answer("Oak Table and Mug.", wanted)
    assert not same_answer("Mug", wanted)
    assert not same_answer("Mug, Oak Table, Bowl", wanted)
    assert not same_answer(None, wanted)
