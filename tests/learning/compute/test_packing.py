"""Rows as the learner gets them, and how they are grouped and flattened."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.learning.compute.packing import Micro, Trained, micro_batches, spread
from tests.learning.made import sampled_rows, tiny


def test_a_row_of_an_expert_needs_only_tokens_and_a_mask():
    row = Trained([3, 4, 5], [False, True, True])
    assert row.advantage == row.weight == [1.0] * 3
    assert row.lp_old == row.lp_beh == [0.0] * 3
    assert row.version == row.turn == [0] * 3
    assert row.rollout != Trained([3, 4, 5], [False, True, True]).rollout


def test_the_sampler_is_the_proximal_policy_by_default():
    assert Trained([3, 4], [False, True], [0.0, -1.0]).lp_beh == [0.0, -1.0]


@pytest.mark.parametrize("column", ["lp_old", "weight", "turn", "lp_ref", "value_target"])
def test_every_list_has_the_length_of_the_row(column):
    with pytest.raises(InputError, match=f"3 tokens.*2 entries of `{column}`"):
        Trained([3, 4, 5], [False, True, True], **{column: [1, 2]})


def test_a_first_token_cannot_be_trained():
    with pytest.raises(InputError, match="nothing predicts it"):
        Trained([3, 4], [True, True])


def test_numbers_of_trained_tokens_are_spread_over_the_row():
    assert spread([False, True, False, True], [7.0, 8.0]) == [0.0, 7.0, 0.0, 8.0]
    with pytest.raises(InputError, match="trains 2 tokens, but 1"):
        spread([False, True, True], [1.0])


def test_turns_are_distinguished_by_rollout_and_call():
    """Calls of different rollouts have the same index, calls of one rollout may lie in two rows."""
    rows = [
        Trained([1, 2, 3, 4], [False, True, True, True], turn=[-1, 0, 0, 1], rollout="a"),
        Trained([1, 2, 5, 6], [False, False, True, True], turn=[-1, -1, 2, 2], rollout="a"),
        Trained([1, 2, 3], [False, True, True], turn=[-1, 0, 0], rollout="b"),
        Trained([1, 2, 3], [False, True, True], turn=[-1, 0, 0]),
    ]
    micro = Micro(rows, tiny())
    named = [
        (rollout, turn)
        for rollout, turn in zip(micro.rollout.tolist(), micro.turn.tolist(), strict=True)
    ]
    wanted = [("a", 0), ("a", 0), ("a", 1), ("a", 2), ("a", 2), ("b", 0), ("b", 0), ("c", 0)]
    wanted.append(wanted[-1])
    pairs = set(zip(named, wanted, strict=True))
    assert len(pairs) == len(set(named)) == len(set(wanted))
    assert len(set(micro.turn.tolist())) == 5
    assert len(set(micro.rollout.tolist())) == 3


def test_reference_log_probabilities_are_for_all_rows_or_none():
    row = Trained([1, 2], [False, True])
    assert Micro([row], tiny()).lp_ref is None
    known = Trained([1, 2], [False, True], lp_ref=[0.0, -2.0])
    assert Micro([known], tiny()).lp_ref.tolist() == [-2.0]
    with pytest.raises(InputError, match="1 of 2 rows"):
        Micro([row, known], tiny())


def test_figures_are_kept_in_the_precision_of_the_network_but_at_least_fp32():
    row = Trained([1, 2], [False, True], [0.0, -1.0])
    for dtype, wide in [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ]:
        assert Micro([row], tiny().to(dtype)).lp_old.dtype is wide


def distinct(rows):
    return {tuple(r.tokens[: i + 1]) for r in rows for i in range(len(r.tokens))}


@given(st.integers(0, 1000), st.integers(1, 100))
def test_micro_batches_hold_every_row_once_within_the_limit(seed, most):
    rows = sampled_rows(8, seed=seed)
    groups = micro_batches(rows, most)
    assert sorted(id(r) for g in groups for r in g) == sorted(id(r) for r in rows)
    for group in groups:
        assert len(group) == 1 or len(distinct(group)) <= most


@given(st.data(), st.integers(1, 60))
def test_whole_rollouts_are_never_parted_and_stay_within_the_limit(data, most):
    token = st.integers(0, 2)  # few, so that rows of different rollouts begin alike
    rows = [
        Trained([0, *tokens], [False, *[True] * len(tokens)], rollout=rollout)
        for tokens, rollout in data.draw(
            st.lists(
                st.tuples(st.lists(token, min_size=1, max_size=12), st.integers(0, 3)),
                min_size=1,
                max_size=10,
            )
        )
    ]
    groups = micro_batches(rows, most, whole_rollouts=True)
    assert sorted(id(r) for g in groups for r in g) == sorted(id(r) for r in rows)
    members = [{r.rollout for r in group} for group in groups]
    assert sum(map(len, members)) == len({r.rollout for r in rows})
    for group, rollouts in zip(groups, members, strict=True):
        assert len(rollouts) == 1 or len(distinct(group)) <= most


def test_rollouts_that_begin_alike_share_a_micro_batch():
    start = list(range(10))
    rows = [Trained([*start, i], [False] * 10 + [True], rollout=i) for i in range(5)]
    for whole in (True, False):
        assert len(micro_batches(rows, 15, whole_rollouts=whole)) == 1
        assert len(micro_batches(rows, 14, whole_rollouts=whole)) == 2


def sizes(groups):
    return sum(len(distinct(group)) for group in groups)


def cuts(rows):
    """All partitions of the rows, in the order of their tokens, into groups."""
    ordered = sorted(rows, key=lambda row: row.tokens)
    for inner in itertools.product([False, True], repeat=len(ordered) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(inner) if cut), len(ordered)]
        yield [ordered[a:b] for a, b in itertools.pairwise(edges)]


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=1, max_size=8),
    st.integers(8, 30),
)
def test_no_cut_computes_fewer_shared_tokens_again(tokens, most):
    rows = [Trained(row, [False] * len(row)) for row in tokens]
    found = micro_batches(rows, most)
    possible = [
        groups
        for groups in cuts(rows)
        if all(len(group) == 1 or len(distinct(group)) <= most for group in groups)
    ]
    assert (sizes(found), len(found)) == min((sizes(groups), len(groups)) for groups in possible)


def test_members_of_a_group_that_fit_are_computed_once():
    """Eight members that begin alike, among other groups: no shared token is run twice."""
    rows = [
        Trained([task, *range(40), 50 + member, *range(20)], [False] * 61 + [True])
        for member in range(8)
        for task in range(4)
    ]
    group = 41 + 8 * 21
    groups = micro_batches(rows, group + 50)
    assert len(groups) == 4
    assert all(len(Micro(g, tiny(100)).tokens) == group for g in groups)
