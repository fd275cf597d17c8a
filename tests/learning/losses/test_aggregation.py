"""How tokens add up: the published numbers, and to whom the weight belongs."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.data.rows import Row
from palaestra.learning.losses.aggregation import Aggregation, token_weights

NORM = Aggregation.ROLLOUT_TOKEN_NORM
OF_ROLLOUTS = [a for a in Aggregation if a is not Aggregation.ROW_ROLLOUT_MEAN]


def row(member, *turns, context=1):
    """A row that trains calls: (index, tokens) each, after `context` tokens of prompt."""
    mask, calls = [], []
    for call, size in turns:
        mask += [False] * context + [True] * size
        calls += [-1] * context + [call] * size
    n = len(mask)
    return Row(Key("rl/1", 0, member), [0] * n, mask, [0.0] * n, calls)


def weights(rows, aggregation):
    return token_weights(rows, aggregation, length=10 if aggregation is NORM else None)


def by_turn(rows, aggregation):
    """(rollout, turn) to the weights of its tokens."""
    found = {}
    for r, values in zip(rows, weights(rows, aggregation), strict=True):
        for on, call, value in zip(r.mask, r.calls, values, strict=True):
            if on:
                found.setdefault((r.key, call), []).append(value)
    return found


def summed(rows, aggregation, losses):
    """The loss of the batch where all tokens of a row have the same loss."""
    found = weights(rows, aggregation)
    return sum(loss * sum(values) for loss, values in zip(losses, found, strict=True))


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation.TOKEN_MEAN, -0.5),
        (Aggregation.ROLLOUT_TOKEN_MEAN, 0.0),
        (Aggregation.ROLLOUT_TOKEN_SUM, -2.0),
        (Aggregation.ROLLOUT_TOKEN_NORM, -0.2),
        (Aggregation.TURN_MEAN, 0.0),
        (Aggregation.ROW_ROLLOUT_MEAN, 0.0),
    ],
)
def test_tokens_add_up_as_published(aggregation, expected):
    assert summed([row(0, (0, 2)), row(1, (0, 6))], aggregation, [1, -1]) == pytest.approx(expected)


def test_agent_lightning_divides_by_the_tokens_of_the_rollout_and_the_number_of_rows():
    rows = [row(0, (0, 2)), row(0, (1, 6)), row(1, (0, 4))]
    advantage = [1, 1, -1]
    found = weights(rows, Aggregation.ROW_ROLLOUT_MEAN)
    per_token = [a * max(w) for a, w in zip(advantage, found, strict=True)]
    per_row = [a * sum(w) for a, w in zip(advantage, found, strict=True)]
    assert per_token == pytest.approx([0.0417, 0.0417, -0.0833], abs=5e-5)
    assert per_row == pytest.approx([0.0833, 0.25, -0.3333], abs=5e-5)


def test_a_mean_over_turns_weighs_a_short_turn_like_a_long_one():
    found = weights([row(0, (0, 1), (3, 4)), row(1, (0, 2))], Aggregation.TURN_MEAN)
    assert found[0] == pytest.approx([0, 1 / 4, 0, 1 / 16, 1 / 16, 1 / 16, 1 / 16])
    assert found[1] == pytest.approx([0, 1 / 4, 1 / 4])


@st.composite
def batches(draw):
    """Rollouts of turns, as whole rows and as rows cut and shuffled at random."""
    shape = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4)
    )
    whole, cut = [], []
    for member, sizes in enumerate(shape):
        turns = list(enumerate(sizes))
        whole.append(row(member, *turns))
        while turns:
            take = draw(st.integers(1, len(turns)))
            cut.append(row(member, *turns[:take], context=draw(st.integers(1, 3))))
            turns = turns[take:]
    return whole, draw(st.permutations(cut))


@pytest.mark.parametrize("aggregation", OF_ROLLOUTS)
@given(made=batches())
def test_splitting_a_rollout_into_rows_changes_no_weight(aggregation, made):
    whole, cut = (by_turn(rows, aggregation) for rows in made)
    assert whole.keys() == cut.keys()
    for turn in whole:
        assert whole[turn] == pytest.approx(cut[turn])


@given(made=batches())
def test_agent_lightnings_mean_only_scales_with_the_number_of_rows(made):
    whole, cut = made
    mean = by_turn(whole, Aggregation.ROLLOUT_TOKEN_MEAN)
    for turn, values in by_turn(cut, Aggregation.ROW_ROLLOUT_MEAN).items():
        assert [v * len(cut) / len(whole) for v in values] == pytest.approx(mean[turn])


@pytest.mark.parametrize(
    "aggregation",
    [Aggregation.TOKEN_MEAN, Aggregation.ROLLOUT_TOKEN_MEAN, Aggregation.TURN_MEAN],
)
@given(made=batches())
def test_the_weights_of_a_mean_sum_to_one(aggregation, made):
    assert sum(map(sum, weights(made[1], aggregation))) == pytest.approx(1)


@given(made=batches())
def test_each_level_weighs_its_members_equally(made):
    rows, _ = made
    tokens = list(itertools.chain(*by_turn(rows, Aggregation.TOKEN_MEAN).values()))
    assert min(tokens) == max(tokens)
    assert [sum(w) for w in weights(rows, Aggregation.ROLLOUT_TOKEN_MEAN)] == pytest.approx(
        [1 / len(rows)] * len(rows)
    )
    for (key, _), values in by_turn(rows, Aggregation.TURN_MEAN).items():
        (mine,) = [r for r in rows if r.key == key]
        assert sum(values) == pytest.approx(1 / (len(rows) * len(set(mine.calls) - {-1})))


@pytest.mark.parametrize("aggregation", list(Aggregation))
@given(made=batches())
def test_untrained_tokens_weigh_nothing_and_others_something(aggregation, made):
    for r, values in zip(made[1], weights(made[1], aggregation), strict=True):
        assert [value > 0 for value in values] == r.mask


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_rollouts_without_trained_tokens_do_not_count(aggregation):
    kept, silent = row(0, (0, 2)), row(1, (0, 0))
    assert weights([kept, silent], aggregation) == [*weights([kept], aggregation), [0.0]]
    assert weights([silent], aggregation) == [[0.0]]
    assert weights([], aggregation) == []


@pytest.mark.parametrize("length", [None, 0])
def test_a_constant_length_must_be_given_where_it_is_read(length):
    with pytest.raises(RecipeError, match="constant length"):
        token_weights([row(0, (0, 2))], NORM, length=length)


def test_a_length_that_nothing_reads_is_an_error():
    with pytest.raises(RecipeError, match="reads no length"):
        token_weights([row(0, (0, 2))], Aggregation.TOKEN_MEAN, length=10)
