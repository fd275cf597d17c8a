"""Laws of every credit rule, checked on each registered one."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.methods.component import Component, Kind, Need, Status, components
from tests.learning.credit.made import ROLES, trajectories

RULES = components(Kind.CREDIT)
CRITIC_FREE = {
    name: part
    for name, part in RULES.items()
    if Need.GROUP in part.needs and Need.VALUE not in part.needs
}

TOKEN_INDEXED = {"igpo_token_baseline"}
"""Compare tokens of equal index, and so see a difference between rollouts of unequal length."""


few = settings(max_examples=25)  # the laws are checked on some thirty rules each


def every(parts: dict[str, Component]) -> Callable[..., object]:
    return pytest.mark.parametrize("part", parts.values(), ids=list(parts))


def apply(part: Component, batch: Sequence[Trajectory]) -> Credit:
    return part.configured({})(batch)


def assert_same(a: Sequence[Tensor] | None, b: Sequence[Tensor] | None, tolerance: float) -> None:
    assert (a is None) == (b is None)
    for x, y in zip(a or (), b or (), strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


@st.composite
def level_groups(draw: st.DrawFn) -> list[Trajectory]:
    """Groups in which all rollouts earned the same, turn by turn, by whatever measure.

    They differ in what is no merit: tokens, segments, durations. States do not recur within a
    rollout, where what follows a first and a second visit would differ.
    """
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    found = []
    for group in range(draw(st.integers(1, 2))):
        count = draw(st.integers(1, 4))
        outcome = draw(st.sampled_from([0.0, 0.125, 0.25]))
        reward = draw(st.sampled_from([0.0, 0.25, -0.5]))
        for member in range(draw(st.integers(2, 4))):
            turns = [
                Turn(
                    tokens=draw(st.integers(1, 4)),
                    reward=reward,
                    call=k,
                    role=ROLES[k % 2],
                    step=k // 2,
                    segment=draw(st.integers(0, 2)),
                    anchor=f"{group}/{k // 2}",
                    progress=k / count,
                    belief=(k + 1) * outcome,  # each turn gains as much as the end is worth
                    contribution=0.25,
                    seconds=rng.uniform(0.1, 10),
                )
                for k in range(count)
            ]
            found.append(
                Trajectory(
                    key=Key("rl/1", group, member),
                    group=f"rl/1/{group}",
                    turns=tuple(turns),
                    outcome=outcome,
                    task="maze",
                    success=outcome > 0,
                    belief=0.0,
                    greedy=outcome,
                    outcomes=dict.fromkeys(ROLES, outcome),
                    parents=tuple(f"{group}.{member}.{k}" for k in range(count)),
                )
            )
    return draw(st.permutations(found))


def test_the_library_has_rules_with_and_without_critic() -> None:
    assert {"reinforce", "running", "reinforce++", "remax", "rloo", "grpo"} <= RULES.keys()
    assert {"gae", "turn_gae", "bilevel_gae", "decoupled_gae"} <= RULES.keys() - CRITIC_FREE.keys()
    assert {"rloo", "grpo", "drgrpo", "broadcast"} <= CRITIC_FREE.keys()
    assert CRITIC_FREE.keys() >= TOKEN_INDEXED


@every(RULES)
def test_a_rule_says_what_it_does_and_where_it_comes_from(part: Component) -> None:
    assert part.summary.endswith(".")
    assert part.source
    assert part.status in Status
    assert inspect.Parameter.empty not in part.options.values()  # it works without options


@every(RULES)
@few
@given(sampled=trajectories())
def test_one_finite_advantage_per_sampled_token(part: Component, sampled: list[Trajectory]) -> None:
    credit = apply(part, sampled)
    assert [len(a) for a in credit.advantages] == [t.tokens for t in sampled]
    for advantages in credit.advantages:
        assert advantages.shape == (len(advantages),) and advantages.dtype == torch.float64
        assert bool(advantages.isfinite().all())
    if credit.returns is not None:
        assert [len(r) for r in credit.returns] == [t.tokens for t in sampled]
        for returns in credit.returns:
            assert not bool(returns.isinf().any())
            assert not bool(returns.isnan().all())  # NaN, no target, is for some tokens only
    assert all(isinstance(value, float) for value in credit.state.values())


@every(RULES)
@few
@given(sampled=trajectories())
def test_rules_with_a_critic_and_only_those_give_it_targets(
    part: Component, sampled: list[Trajectory]
) -> None:
    assert (apply(part, sampled).returns is not None) == (Need.VALUE in part.needs)


@every(RULES)
@few
@given(sampled=trajectories(), data=st.data())
def test_permuting_the_batch_permutes_the_result(
    part: Component, sampled: list[Trajectory], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(sampled))))
    straight, permuted = apply(part, sampled), apply(part, [sampled[i] for i in order])
    assert_same(permuted.advantages, [straight.advantages[i] for i in order], 1e-7)
    if straight.returns is not None:
        assert_same(permuted.returns, [straight.returns[i] for i in order], 1e-7)
    assert dict(permuted.state) == pytest.approx(dict(straight.state))


@every(RULES)
@few
@given(sampled=trajectories())
def test_splitting_a_rollout_into_segments_changes_no_advantage(
    part: Component, sampled: list[Trajectory]
) -> None:
    def split(segment: Callable[[int], int]) -> list[Trajectory]:
        return [
            replace(t, turns=tuple(replace(k, segment=segment(n)) for n, k in enumerate(t.turns)))
            for t in sampled
        ]

    whole, parts = apply(part, split(lambda n: 0)), apply(part, split(lambda n: n))
    assert_same(whole.advantages, parts.advantages, 0.0)
    assert_same(whole.returns, parts.returns, 0.0)


@every(CRITIC_FREE)
@few
@given(sampled=level_groups())
def test_equal_rewards_in_a_group_teach_exactly_nothing(
    part: Component, sampled: list[Trajectory]
) -> None:
    if part.name in TOKEN_INDEXED:
        sampled = [
            replace(t, turns=tuple(replace(turn, tokens=2) for turn in t.turns)) for t in sampled
        ]
    assert all(bool((a == 0).all()) for a in apply(part, sampled).advantages)


@every(RULES)
@few
@given(sampled=trajectories())
def test_a_rule_changes_nothing_and_remembers_nothing(
    part: Component, sampled: list[Trajectory]
) -> None:
    before = copy.deepcopy(sampled)
    first, second = apply(part, sampled), apply(part, sampled)
    assert sampled == before
    assert_same(first.advantages, second.advantages, 0.0)
    assert_same(first.returns, second.returns, 0.0)
    assert first.state == second.state
