"""What events change is told apart from what the agent changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.environments.families.apps.state import State, difference
from tests.environments.families.apps.small_world import template

ACCOUNT, EVENT, CARD = "bank.account", "calendar.event", "bank.card"
NEW = {"owner": 1, "title": "Tea", "starts": "2026-03-03 10:00", "minutes": 60, "place": ""}


def test_a_row_that_an_event_makes_is_no_change_until_the_agent_changes_it() -> None:
    state = State(template())
    with state.happening("made 0"):
        id = state.insert(EVENT, NEW)
    assert state.changes() == []
    assert state.event_rows() == {(EVENT, id): "made 0 0"}
    state.update(EVENT, id, {"place": "here"})
    (change,) = state.changes()
    assert (change.kind, change.values) == ("update", {"place": "here"})
    state.delete(EVENT, id)
    assert [one.kind for one in state.changes()] == ["delete"]


def test_in_a_row_that_the_agent_made_its_own_values_stay() -> None:
    state = State(template())
    id = state.insert(EVENT, NEW)
    with state.happening("moved 0"):
        state.update(EVENT, id, {"starts": "2026-03-04 10:00"})
    (change,) = state.changes()
    assert change.after is not None and change.after["starts"] == NEW["starts"]
    state.update(EVENT, id, {"starts": "2026-03-05 10:00"})
    (change,) = state.changes()
    assert change.after is not None and change.after["starts"] == "2026-03-05 10:00"


def test_of_two_payments_it_does_not_matter_which_came_first() -> None:
    def pay(state: State, amount: float) -> None:
        balance = state.find(ACCOUNT, owner=1)[0]["balance"]
        id = state.find(ACCOUNT, owner=1)[0]["id"]
        state.update(ACCOUNT, id, {"balance": round(balance + amount, 2)})

    found = []
    for agent_first in (True, False):
        state = State(template())
        if agent_first:
            pay(state, -10)
        with state.happening("paid 0"):
            pay(state, 25.5)
        if not agent_first:
            pay(state, -10)
        found.append(state.changes())
    assert found[0] == found[1]
    (change,) = found[0]
    assert change.before is not None and change.after is not None
    assert change.after["balance"] - change.before["balance"] == -10


def test_what_an_event_undoes_is_no_change_of_its_own() -> None:
    state = State(template())
    try:
        with state.happening("failed 0") as written, state.transaction():
            state.insert(EVENT, NEW)
            raise RuntimeError
    except RuntimeError:
        pass
    assert written == [] and state.changes() == [] and state.event_rows() == {}


WRITES = st.lists(
    st.tuples(
        st.booleans(),  # whether an event writes
        st.sampled_from(["insert", "update", "delete"]),
        st.integers(0, 3),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=12,
)


def write(state: State, writes: Sequence[tuple[bool, str, int, str]], only: bool | None) -> None:
    """Make writes of events, of the agent (`only`), or of both (None)."""
    for number, (event, way, which, word) in enumerate(writes):
        if only is not None and event != only:
            continue
        rows = state.find(EVENT, owner=1)
        if event:
            with state.happening(f"event {number}"):
                _write(state, rows, way, which, word)
        else:
            _write(state, rows, way, which, word)


def _write(state: State, rows: list[dict[str, object]], way: str, which: int, word: str) -> None:
    if way == "insert":
        state.insert(EVENT, NEW | {"title": word})
    elif rows:
        id = int(str(rows[which % len(rows)]["id"]))
        if way == "update":
            state.update(EVENT, id, {"place": word})
        else:
            state.delete(EVENT, id)


@settings(max_examples=60, deadline=None)
@given(WRITES)
def test_without_deeds_of_the_agent_there_are_no_changes(
    writes: list[tuple[bool, str, int, str]],
) -> None:
    state = State(template())
    write(state, writes, only=True)
    assert state.changes() == []


@settings(max_examples=60, deadline=None)
@given(WRITES)
def test_without_events_the_changes_are_all_that_differs(
    writes: list[tuple[bool, str, int, str]],
) -> None:
    state = State(template())
    write(state, writes, only=False)
    assert state.changes() == difference(State(template()), state)


@settings(max_examples=60, deadline=None)
@given(WRITES)
def test_a_log_survives_a_snapshot_and_a_fork(writes: list[tuple[bool, str, int, str]]) -> None:
    state, restored = State(template()), State(template())
    write(state, writes, only=None)
    restored.restore(state.snapshot())
    assert state.changes() == restored.changes() == state.fork().changes()
    assert state.event_rows() == restored.event_rows()
    assert state.history_key() == restored.history_key()
