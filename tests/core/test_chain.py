"""A chain: a list that shares its beginning, and never changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.chain import Chain

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


@given(st.lists(items, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_an_agent_and_the_record_extend_one_list_and_no_earlier_prompt_changes(
    turns: list[list[int]], as_list: list[bool]
) -> None:
    prompt: Chain[int] = Chain([0])
    record: Chain[int] = Chain()
    given: list[tuple[Chain[int], list[int]]] = []
    for observation, listed in zip(turns, as_list, strict=False):
        continued = record.continued(list(prompt) if listed else prompt)
        assert continued is not None and continued == prompt
        given += [(prompt, list(prompt)), (continued, list(continued))]
        record = continued.extended([7])  # the reply, as it is recorded
        prompt = prompt.extended([7, *observation, 0])  # the agent adds it too
    assert all(chain == before for chain, before in given)


def test_a_chain_that_extends_the_record_is_taken_without_a_comparison_or_a_copy() -> None:
    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    asked: Chain[Incomparable] = Chain([Incomparable()])
    record = Chain.of(asked)
    assert record is asked
    reply = Incomparable()
    record = record.extended([reply])
    asked = asked.extended([reply, Incomparable()])
    assert record.continued(asked) is asked
    assert Chain.of(asked) is asked


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
