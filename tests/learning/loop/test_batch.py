"""From episodes to the learner's rows: who is credited, and with what weight."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.learning.credit.per_player import parts
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.batch import (
    corrected,
    filtered,
    gathered,
    instructive,
    split_by_rollout,
    trained_rows,
    trajectories,
    with_ends,
    with_proximal,
)
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.methods.algorithms import ALGORITHMS, Method, algorithm
from palaestra.learning.methods.component import Need
from tests.learning.made import call, episode

PLAIN = Shaping(10, {"outcome": 1.0}, {"outcome": {"turn_cost": 0.0}})
SUCCESS, FAILURE = Outcome.success(), Outcome.failure()
BROKEN = Outcome.error("crash", Owner.ENVIRONMENT)


def group(*outcomes, number=0):
    return [
        episode([call(0, None, [1], [2, 3])], group=number, member=i, outcome=outcome)
        for i, outcome in enumerate(outcomes)
    ]


def credited(episodes, name="rloo", shaping=PLAIN):
    """The advantage of the first token of each rollout that teaches something."""
    method = Method(algorithm(name))
    batch = filtered(trajectories(episodes, shaping, "policy"), method)
    credit = method.credit(batch, {})
    good = instructive(batch, credit, 1e-3)
    pairs = zip(batch, credit.advantages, strict=True)
    return {t.key: float(a[0]) for t, a in pairs if t.key in good}


GROUPED = [name for name in ALGORITHMS if Method(algorithm(name)).needs == {Need.GROUP}]


def test_episodes_without_a_result_leave_the_group_before_it_is_judged():
    whole = group(SUCCESS, BROKEN, FAILURE, Outcome.error("server", Owner.INFRASTRUCTURE))
    assert credited(whole) == pytest.approx({whole[0].key: 1.0, whole[2].key: -1.0})


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_with_one_result_teaches_nothing(name):
    assert credited(group(SUCCESS, BROKEN, BROKEN), name) == {}
    assert credited(group(BROKEN, BROKEN), name) == {}


@pytest.mark.parametrize("name", GROUPED)
def test_a_group_that_agrees_teaches_nothing(name):
    assert credited(group(SUCCESS, SUCCESS, SUCCESS), name) == {}


def test_the_agents_own_errors_and_limits_count_as_failures():
    unparsed = Outcome.error("unparsed", Owner.AGENT)
    episodes = group(SUCCESS, unparsed, Outcome.truncated(Limit.TURNS))
    assert list(credited(episodes).values()) == pytest.approx([1.0, -0.5, -0.5])


def test_groups_are_judged_apart():
    episodes = group(SUCCESS, FAILURE) + group(FAILURE, FAILURE, number=1)
    assert set(credited(episodes, "loop")) == {e.key for e in episodes[:2]}


def test_a_filter_leaves_out_whole_groups():
    episodes = group(SUCCESS, FAILURE) + group(FAILURE, FAILURE, number=1)
    batch = filtered(trajectories(episodes, PLAIN, "policy"), Method(algorithm("dapo")))
    assert {t.key for t in batch} == {e.key for e in episodes[:2]}


def test_a_quicker_success_is_a_better_one():
    episodes = [
        episode([call(0, None, [1], [2])], member=i, turns=turns) for i, turns in enumerate([2, 8])
    ]
    found = credited(episodes, shaping=Shaping(10, options={"outcome": {"turn_cost": 0.5}}))
    assert found == pytest.approx({episodes[0].key: 0.3, episodes[1].key: -0.3})


def two_turns():
    return episode([call(0, None, [1, 2], [3]), call(1, 0, [4], [5, 6])])


def test_each_player_s_end_is_that_of_its_own_conversation():
    """A game that was cut off: two conversations, and the critic's value at the end of each."""
    moves = [call(0, None, [1], [2]), call(1, None, [3], [4]), call(2, 0, [5], [6])]
    made = episode([replace(c, role=r) for c, r in zip(moves, "aba", strict=True)])
    (trajectory,) = trajectories([made], PLAIN, "policy")
    game = replace(trajectory, outcomes={"a": 0.0, "b": 0.0}, truncated=True)
    rows = {row.calls[-1]: row for row in rows_of(made, "policy")}
    assert set(rows) == {1, 2}
    found = with_ends(game, {(made.key, 1): -0.5, (made.key, 2): 0.75})
    assert (found.bootstrap, found.bootstraps) == (0.75, {"a": 0.75, "b": -0.5})
    ends = {part.trajectory.turns[0].role: part.trajectory.bootstrap for part in parts([found])}
    assert ends == found.bootstraps


def test_advantage_and_weight_are_zero_where_the_mask_is():
    made = two_turns()
    numbers = {(made.key, 0): [-2.0], (made.key, 1): [0.5, 0.75]}
    (trained,) = trained_rows(rows_of(made, "policy"), numbers, Aggregation.TOKEN_MEAN)
    assert trained.advantage == [0, 0, -2, 0, 0.5, 0.75]
    assert trained.weight == pytest.approx([0, 0, 1 / 3, 0, 1 / 3, 1 / 3])
    assert trained.lp_old == [0, 0, -1, 0, -1, -1]


def test_numbers_per_token_go_to_their_rows_and_come_back():
    rows = rows_of(two_turns(), "policy")
    numbers = {(rows[0].key, 0): [1.0], (rows[0].key, 1): [2.0, 3.0]}
    trained = trained_rows(rows, numbers, Aggregation.TOKEN_MEAN)
    values = [[a for a, on in zip(r.advantage, r.mask, strict=True) if on] for r in trained]
    assert gathered(rows, values) == numbers


def test_a_correction_multiplies_advantages_and_leaves_weights():
    rows = rows_of(two_turns(), "policy")
    numbers = {(rows[0].key, 0): [1.0], (rows[0].key, 1): [1.0, 1.0]}
    trained = trained_rows(rows, numbers, Aggregation.TOKEN_MEAN)
    moved = with_proximal(trained, [[-1.0, -1.0 + math.log(5.0), -1.0]])
    method = Method(replace(algorithm("grpo"), correction="tis"))
    (row,) = corrected(moved, method)
    assert row.advantage == pytest.approx([0, 0, 1, 0, 2, 1])  # a ratio of 5, capped at 2
    assert row.weight == trained[0].weight


@given(st.integers(1, 12), st.integers(1, 6), st.data())
def test_minibatches_hold_every_row_once_and_never_part_a_rollout(rollouts, parts, data):
    rows = []
    for member in range(rollouts):
        calls = [call(i, None, [1], [2]) for i in range(data.draw(st.integers(1, 3)))]
        rows += rows_of(episode(calls, member=member), "policy")
    order = data.draw(st.permutations([Key("rl/1", 0, m) for m in range(rollouts)]))
    batches = split_by_rollout(rows, parts, order)
    assert sorted(id(r) for b in batches for r in b) == sorted(id(r) for r in rows)
    members = [{r.key for r in b} for b in batches]
    assert sum(len(m) for m in members) == rollouts
    assert max(map(len, members)) - min(map(len, members)) <= 1
