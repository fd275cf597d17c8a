"""A world's snapshot is saved as what differs from the beginning, and comes back whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.environments.families.apps.changed_world import shortened, whole

rows = st.binary(min_size=1, max_size=20_000)
lines = st.binary(max_size=50).map(lambda line: line.replace(b"\n", b" "))


@given(rows, rows, st.tuples(lines, lines))
def test_a_snapshot_comes_back_whole(begun: bytes, now: bytes, head: tuple[bytes, bytes]) -> None:
    first, snapshot = b"[]\n{}\n" + begun, b"\n".join((*head, now))
    assert whole(shortened(snapshot, first), first) == snapshot


def test_a_small_change_of_a_large_world_is_short() -> None:
    begun = b"[]\n{}\n" + bytes(range(256)) * 4_000
    now = begun[:500_000] + b"changed" + begun[500_007:]
    assert len(shortened(now, begun)) < 1_000
