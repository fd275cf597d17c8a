"""The key and the log of changes are what they would be if computed from all rows."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.state import Change, State, difference

TEXT = """
app = "box"
about = "Things."
[entities.thing]
about = "A thing."
owner = "owner"
unique = [["name"]]
fields.owner = {type = "person", by = "service"}
fields.name = "text"
fields.price = "money"
fields.mine = "boolean"
[entities.label]
about = "A label."
public = true
fields.words = "text"
"""
EMPTY = Suite.of([App(parse(TEXT))]).empty()
THING, LABEL = "box.thing", "box.label"

values = st.fixed_dictionaries(
    {"owner": st.integers(1, 2), "name": st.sampled_from("abcd")},
    optional={
        "price": st.one_of(st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.5])),
        "mine": st.booleans(),
    },
)
labels = st.fixed_dictionaries({"words": st.sampled_from(["", "x", "ß", "'; --"])})
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.just(THING), values),
        st.tuples(st.just("insert"), st.just(LABEL), labels),
        st.tuples(st.just("update"), st.just(THING), st.tuples(st.integers(1, 6), values)),
        st.tuples(st.just("update"), st.just(LABEL), st.tuples(st.integers(1, 6), labels)),
        st.tuples(st.just("delete"), st.sampled_from([THING, LABEL]), st.integers(1, 6)),
        st.tuples(st.just("undone"), st.just(THING), values),
    ),
    max_size=20,
)


class StopWriting(Exception):
    """Raised within a transaction."""


def do(state: State, step: tuple[str, str, Any]) -> None:
    """Do a step; one that is not possible changes nothing."""
    way, table, what = step
    try:
        if way == "insert":
            state.insert(table, what)
        elif way == "update":
            state.update(table, what[0], what[1])
        elif way == "delete":
            state.delete(table, what)
        else:
            with state.transaction():
                state.insert(LABEL, {"words": "never"})
                state.insert(table, what)
                for row in state.rows(table):
                    state.delete(table, row["id"])
                raise StopWriting
    except (KeyError, StopWriting, sqlite3.IntegrityError):
        pass


def after(*many: tuple[str, str, Any], state: State | None = None) -> State:
    state = state or State(EMPTY)
    for step in many:
        do(state, step)
    return state


def kept(state: State) -> int:
    """The sum of hashes that the state keeps up."""
    return state.template().total


@given(steps, steps)
@settings(max_examples=40, deadline=None)
def test_the_kept_key_is_the_computed_one(before: Any, then: Any) -> None:
    state = State(after(*before).template())
    opened = state.fork()
    for step in then:
        do(state, step)
        assert kept(state) == state.total()
    assert state.changes() == difference(opened, state)
    if not state.changes():
        assert kept(state) == kept(opened)
    else:
        assert kept(state) != kept(opened)


@given(steps, steps, steps)
@settings(max_examples=40, deadline=None)
def test_a_snapshot_brings_back_rows_key_and_log(before: Any, then: Any, last: Any) -> None:
    state = after(*then, state=State(after(*before).template()))
    snapshot, key, changes, ids = state.snapshot(), state.key(), state.changes(), kept(state)
    after(*last, state=state)
    state.restore(snapshot)
    assert (state.key(), state.changes(), kept(state)) == (key, changes, ids)
    assert state.total() == ids
    other = State(EMPTY)
    other.restore(snapshot)
    assert after(*last, state=other).key() == after(*last, state=state).key()
    assert state.total() == kept(state)


@given(steps, steps)
@settings(max_examples=40, deadline=None)
def test_a_fork_goes_on_as_its_original_and_apart_from_it(before: Any, then: Any) -> None:
    state = after(*before)
    key, fork = state.key(), state.fork()
    assert fork.key() == key and fork.changes() == state.changes()
    after(*then, state=fork)
    assert state.key() == key
    assert after(*then, state=state).key() == fork.key()
    assert state.changes() == fork.changes()


def test_equal_states_by_different_routes_have_equal_keys() -> None:
    one, two = State(EMPTY), State(EMPTY)
    one.insert(LABEL, {"words": "a"})
    one.insert(LABEL, {"words": "b"})
    two.insert(LABEL, {"words": "x"})
    two.insert(LABEL, {"words": "b"})
    two.update(LABEL, 1, {"words": "y"})
    assert one.key() != two.key()
    two.update(LABEL, 1, {"words": "a"})
    assert one.key() == two.key()


def test_a_deleted_row_leaves_its_id_behind_in_the_key() -> None:
    """The next row would get another id, so the states do not go on alike."""
    one, two = State(EMPTY), State(EMPTY)
    one.delete(LABEL, one.insert(LABEL, {"words": "a"}))
    assert one.total() == two.total() and one.changes() == two.changes() == []
    assert one.key() != two.key()
    assert one.insert(LABEL, {"words": "b"}) == 2


def test_whole_amounts_of_money_are_one_number() -> None:
    one, two = State(EMPTY), State(EMPTY)
    row = {"owner": 1, "name": "a", "mine": True}
    one.insert(THING, row | {"price": 25})
    two.insert(THING, row | {"price": 25.0})
    assert one.key() == two.key()
    one.update(THING, 1, {"price": 25.0})
    assert one.key() == two.key()


def test_rows_swapped_between_tables_or_owners_have_another_key() -> None:
    one, two = State(EMPTY), State(EMPTY)
    for state, owners in ((one, (1, 2)), (two, (2, 1))):
        for owner, name in zip(owners, "ab", strict=True):
            state.insert(THING, {"owner": owner, "name": name})
    assert one.key() != two.key()


def test_changes_name_the_kind_and_the_values() -> None:
    state = State(
        after(("insert", LABEL, {"words": "a"}), ("insert", LABEL, {"words": "b"})).template()
    )
    state.update(LABEL, 1, {"words": "c"})
    state.delete(LABEL, 2)
    state.insert(LABEL, {"words": "d"})
    changes = state.changes()
    assert [(change.kind, change.id) for change in changes] == [
        ("update", 1), ("delete", 2), ("insert", 3),
    ]  # fmt: skip
    assert [change.values for change in changes] == [{"words": "c"}, {}, {"id": 3, "words": "d"}]
    assert changes[0] == Change(LABEL, 1, {"id": 1, "words": "a"}, {"id": 1, "words": "c"})


def test_a_value_that_is_changed_back_is_no_change() -> None:
    state = State(after(("insert", LABEL, {"words": "a"})).template())
    state.update(LABEL, 1, {"words": "b"})
    state.update(LABEL, 1, {"words": "a"})
    assert state.changes() == []


def test_an_unlawful_insert_leaves_no_trace() -> None:
    state = after(("insert", THING, {"owner": 1, "name": "a"}))
    key = state.key()
    with pytest.raises(sqlite3.IntegrityError):
        state.insert(THING, {"owner": 1, "name": "a"})
    state.insert(THING, {"owner": 2, "name": "a"})
    with pytest.raises(sqlite3.IntegrityError):
        state.update(THING, 2, {"owner": 1})
    state.delete(THING, 2)
    assert state.total() == kept(state)
    assert state.key() != key  # an id is used up
    assert len(state.rows(THING)) == 1


def test_transactions_within_transactions() -> None:
    state = State(EMPTY)
    with state.transaction():
        state.insert(LABEL, {"words": "a"})
        do(state, ("undone", THING, {"owner": 1, "name": "a"}))
    assert [row["words"] for row in state.rows(LABEL)] == ["a"]
    assert state.total() == kept(state)
    assert state.insert(LABEL, {"words": "c"}) == 2


def test_rows_that_are_missing() -> None:
    state = State(EMPTY)
    assert state.get(LABEL, 1) is None
    for write in (lambda: state.update(LABEL, 1, {}), lambda: state.delete(LABEL, 1)):
        with pytest.raises(KeyError, match="no row 1"):
            write()


def test_booleans_come_back_as_booleans() -> None:
    state = after(("insert", THING, {"owner": 1, "name": "a", "mine": True}))
    assert state.rows(THING)[0]["mine"] is True
    assert state.find(THING, mine=True) == state.rows(THING)
    assert state.rows(THING)[0]["price"] is None
