"""Pages that differ from a base give back the data, and equal data takes next to nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.environments.shared.changed_pages import SIZE, changed, difference

PAGES = st.lists(st.integers(0, 3), max_size=5).map(
    lambda kinds: b"".join(bytes([kind]) * SIZE for kind in kinds)
)


@given(PAGES, PAGES, st.binary(max_size=20))
def test_a_difference_gives_back_the_data(base: bytes, data: bytes, rest: bytes) -> None:
    assert changed(difference(data + rest, base), base) == data + rest


def test_equal_data_takes_next_to_nothing() -> None:
    data = bytes(range(256)) * SIZE
    assert len(difference(data, data)) < 30
