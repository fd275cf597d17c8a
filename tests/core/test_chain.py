"""A chain: a list that shares its beginning, and never changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.graph import Chain

items = st.lists(st.integers(0, 2), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 9), items), max_size=12))
def test_chains_that_extend_each_other_in_any_order_are_what_lists_would_be(
    moves: list[tuple[int, list[int]]],
) -> None:
    chains: list[Chain[int]] = [Chain()]
    lists: list[list[int]] = [[]]
    for of, more in moves:
        chains.append(chains[of % len(chains)].extended(more))
        lists.append([*lists[of % len(lists)], *more])
    for chain, expected in zip(chains, lists, strict=True):
        assert list(chain) == expected and len(chain) == len(expected)
        assert chain == expected and chain == tuple(expected) and chain != [*expected, 0]


@given(items, items, st.booleans())
def test_what_continues_a_chain_is_what_strictly_extends_it(
    before: list[int], asked: list[int], extending: bool
) -> None:
    chain, other = Chain(before), Chain(before)
    asked = [*before, *asked] if extending else asked
    longer = chain.continued(asked)
    if len(asked) > len(before) and asked[: len(before)] == before:
        assert longer == asked
    else:
        assert longer is None
    assert chain == other == before
    assert chain.extended([7]) == [*before, 7]


@given(items, st.slices(6))
def test_slices_are_those_of_the_list(values: list[int], part: slice) -> None:
    chain = Chain(values).extended([9])
    assert chain[part] == [*values, 9][part]
    assert chain[-1] == 9 and Chain(values)[:] == values


def test_a_growing_list_is_compared_by_identity_after_the_first_time() -> None:
    class Counting:
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counting.compared += 1
            return isinstance(other, Counting)

        __hash__ = None  # type: ignore[assignment]

    asked: list[Counting] = [Counting()]
    chain = Chain(asked)
    for _ in range(100):
        chain = chain.extended([Counting()])  # a reply, which the caller makes again
        asked += [Counting(), Counting()]
        continued = chain.continued(asked)
        assert continued is not None
        chain = continued
    assert Counting.compared == 100
