"""Turn credit: the published numbers, and what each source of turn rewards means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.returns import drgrpo, grpo
from palaestra.learning.credit.rule import Credit, centred
from palaestra.learning.credit.turn_rewards import (
    belief,
    by_turn,
    gains,
    igpo,
    igpo_token_baseline,
    mt_grpo,
    mt_grpo_cumulative,
    return_to_go,
    step_grpo,
)
from palaestra.learning.data.trajectory import Trajectory
from tests.learning.credit.made import batch, close, rollout, scalars, trajectories

Rule = Callable[..., Credit]
PER_TURN: list[Rule] = [
    return_to_go,
    mt_grpo,
    mt_grpo_cumulative,
    igpo,
    step_grpo,
]
CRITIC_FREE: list[Rule] = [*PER_TURN, igpo_token_baseline]

TURN, OUTCOME = [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]


def group(*rewards: Sequence[float], outcomes: Sequence[float] | None = None) -> list[Trajectory]:
    """One group of rollouts with these rewards per turn."""
    ends = outcomes or [0.0] * len(rewards)
    pairs = zip(rewards, ends, strict=True)
    return [rollout(r, outcome=o, member=m) for m, (r, o) in enumerate(pairs)]


def two_turns() -> list[Trajectory]:
    """A rewarded call of a tool, then an answer."""
    return group(*([reward, 0.0] for reward in TURN), outcomes=OUTCOME)


def at(credit: Credit, token: int) -> Tensor:
    """The advantage of one token of each rollout, [G]."""
    return torch.stack([a[token] for a in credit.advantages])


def numbers(credit: Credit) -> Tensor:
    return torch.cat(credit.advantages)


# By turn


def test_rollouts_that_ended_take_part_with_what_they_ended_with() -> None:
    sampled = batch([0, 0], turns=[1, 3])
    first, second = by_turn(sampled, [[1.0], [3.0, 5.0, 7.0]], [2.0, 0.0], centred)
    assert first.tolist() == [-1]
    assert second.tolist() == [1, 1.5, 2.5]


def test_turns_of_different_groups_are_not_compared() -> None:
    sampled = [*batch([0, 0]), *batch([0, 0], group=1)]
    found = by_turn(sampled, [[1.0], [3.0], [10.0], [10.0]], [0.0] * 4, centred)
    assert torch.cat(found).tolist() == [-1, 1, 0, 0]


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(1, 5)), min_size=2, max_size=6))
def test_with_an_outcome_alone_return_to_go_is_drgrpo(sampled: list[tuple[int, int]]) -> None:
    ends, lengths = [end / 4 for end, _ in sampled], [length for _, length in sampled]
    made = batch(ends, turns=lengths)
    assert close(scalars(return_to_go(made)), scalars(drgrpo(made)), 1e-12)


def test_return_to_go_forgets_what_a_rollout_earned_before() -> None:
    early, late = group([1, 0], [0, 1])
    credit = return_to_go([early, late])
    assert at(credit, 0).tolist() == [0, 0]
    assert at(credit, 1).tolist() == [-0.5, 0.5]
    assert at(return_to_go([early, late], gamma=0.5), 0).tolist() == [0.25, -0.25]


# MT-GRPO


def test_mt_grpo_with_two_turns_is_the_release() -> None:
    credit = mt_grpo(two_turns())
    assert close(at(credit, 0), [1.7318, 0, 0, -1.7318])
    assert close(at(credit, 1), [0.8659, -0.8659, 0.8659, -0.8659])


def test_mt_grpo_weighs_the_turn_part() -> None:
    plain, halved = at(mt_grpo(two_turns(), c=0), 0), at(mt_grpo(two_turns(), c=0.5), 0)
    assert close(plain, [0.8659, -0.8659, 0.8659, -0.8659])
    assert close(2 * (halved - plain), [0.8659, 0.8659, -0.8659, -0.8659])


def test_a_rollout_of_one_turn_gets_its_normalised_total() -> None:
    alone = group(*([reward] for reward in TURN), outcomes=OUTCOME)
    assert close(scalars(mt_grpo(alone)), [1.2246, 0, 0, -1.2246])
    long = two_turns()
    mixed = mt_grpo([long[0], long[1], alone[2], alone[3]])
    expected = [[1.7318, 0.8659], [0, -0.8659], [0], [-1.2246]]
    for advantages, values in zip(mixed.advantages, expected, strict=True):
        assert close(advantages, values)


def test_a_turn_is_credited_with_later_turn_rewards_and_not_with_earlier_ones() -> None:
    sampled = group([0, 1, 0], [0, 0, 0])
    part = 0.5**0.5  # of one standard deviation (n - 1) between two
    credit = mt_grpo(sampled, eps=1e-12)
    assert close(credit.advantages[0], [part, part, 0])
    assert close(credit.advantages[1], [-part, -part, 0])


def test_mt_grpo_ignores_the_unit_of_each_reward() -> None:
    scaled = group(*([10 * reward, 0.0] for reward in TURN), outcomes=[o / 10 for o in OUTCOME])
    assert close(numbers(mt_grpo(scaled, eps=1e-12)), numbers(mt_grpo(two_turns(), eps=1e-12)))


def test_mt_grpo_exposes_its_deviation() -> None:
    population = mt_grpo(two_turns(), ddof=0, eps=1e-12)
    assert close(at(population, 0), [2, 0, 0, -2])


def test_the_cumulative_estimator_with_two_turns_is_the_release() -> None:
    credit = mt_grpo_cumulative(two_turns())
    assert close(at(credit, 0), [1.2246, 0, 0, -1.2246])
    assert close(at(credit, 1), [0.8659, -0.8659, 0.8659, -0.8659])
    long, alone = two_turns(), group(*([reward] for reward in TURN), outcomes=OUTCOME)
    mixed = mt_grpo_cumulative([long[0], long[1], alone[2], alone[3]])
    expected = [[1.2246, 0.8659], [0, -0.8659], [0], [-1.2246]]
    for advantages, values in zip(mixed.advantages, expected, strict=True):
        assert close(advantages, values)


def test_the_cumulative_estimator_discounts_the_outcome() -> None:
    sums = batch([t + 0.5 * o for t, o in zip(TURN, OUTCOME, strict=True)])
    credit = mt_grpo_cumulative(two_turns(), gamma=0.5)
    assert close(at(credit, 0), scalars(grpo(sums, eps=1e-4)))


# IGPO


def believed(*beliefs: Sequence[float], outcomes: Sequence[float]) -> list[Trajectory]:
    """Rollouts by the belief before the first turn and after each but the last."""
    return [
        rollout(
            [0.0] * len(own),
            outcome=outcome,
            member=member,
            tokens=2,
            slots={"belief": own[0]},
            belief=[*own[1:], None],
        )
        for member, (own, outcome) in enumerate(zip(beliefs, outcomes, strict=True))
    ]


def informed() -> list[Trajectory]:
    return believed([0.1, 0.3, 0.6], [0.5, 0.45, 0.6], outcomes=[1, 0])


def test_belief_is_the_geometric_mean_of_the_answers_tokens() -> None:
    assert belief([-0.2, -0.4, -0.6]) == pytest.approx(0.6703, abs=5e-5)
    assert belief(torch.tensor([math.log(0.25)])) == pytest.approx(0.25)
    with pytest.raises(InputError, match="empty"):
        belief([])


@given(st.lists(st.floats(-5, 0), min_size=1, max_size=8), st.integers(1, 4))
def test_belief_does_not_depend_on_the_length_of_the_answer(lp: list[float], times: int) -> None:
    assert belief(lp * times) == pytest.approx(belief(lp))


def test_gains_are_differences_of_beliefs_and_the_outcome() -> None:
    first, second = informed()
    assert gains(first) == pytest.approx([0.2, 0.3, 1])
    assert gains(second) == pytest.approx([-0.05, 0.15, 0])


def test_igpo_normalises_all_turns_of_a_group_together() -> None:
    credit = igpo(informed(), ddof=1, eps=0)
    assert close(credit.advantages[0][::2], [1.8341, 2.0088, 1.9214])
    assert close(credit.advantages[1][::2], [-1.8341, -1.0044, -0.6987])
    normalised = igpo(informed(), gamma=0, ddof=1)
    assert close(normalised.advantages[0][::2], [-0.1747, 0.0873, 1.9214])
    assert close(normalised.advantages[1][::2], [-0.8297, -0.3057, -0.6987])
    for advantages in credit.advantages:
        assert torch.equal(advantages[::2], advantages[1::2])


def test_the_release_of_igpo_divides_by_the_population_deviation() -> None:
    factor = (6 / 5) ** 0.5
    pairs = zip(igpo(informed()).advantages, igpo(informed(), ddof=1).advantages, strict=True)
    for ours, sample in pairs:
        assert close(ours, factor * sample, 1e-4)


def test_the_first_release_of_igpo_compares_tokens_of_equal_index() -> None:
    first, second = informed()
    credit = igpo_token_baseline([first, second])
    assert close(credit.advantages[0], [0.125, 0.125, 0.075, 0.075, 0.5, 0.5])
    assert close(credit.advantages[1], [-0.125, -0.125, -0.075, -0.075, -0.5, -0.5])
    # one token more in the first turn: the third token is now compared across turns
    shifted = replace(second, turns=(replace(second.turns[0], tokens=3), *second.turns[1:]))
    credit = igpo_token_baseline([first, shifted])
    assert close(credit.advantages[0], [0.125, 0.125, 0.175, 0.075, 0.425, 0.5])
    assert close(credit.advantages[1], [-0.125, -0.125, -0.175, -0.075, -0.425, -0.5, 0])


def test_the_first_release_of_igpo_credits_no_turn_with_what_it_led_to() -> None:
    """The regression: with the same gains, only the paper's form sees the later success."""
    sampled = believed([0.5, 0.5], [0.5, 0.5], outcomes=[1, 0])
    assert at(igpo_token_baseline(sampled), 0).tolist() == [0, 0]
    good, bad = at(igpo(sampled), 0)
    assert good > 0.5 > -0.5 > bad


def test_a_missing_belief_is_named() -> None:
    first, second = informed()
    with pytest.raises(InputError, match=r"rl/1/0\.1 lacks some"):
        igpo([first, replace(second, belief=None)])
    without = replace(first, turns=(replace(first.turns[0], belief=None), *first.turns[1:]))
    with pytest.raises(InputError, match=r"rl/1/0\.0 lacks some"):
        igpo([without, second])


def test_a_single_turn_needs_no_belief() -> None:
    assert gains(rollout([0.25], outcome=0.5)) == [0.5]


# Step-level GRPO


def steps() -> list[Trajectory]:
    """A success whose second turn is malformed, and a failure of three turns."""
    success = rollout([0, 0], outcome=1, valid=[True, False], slots={"success": True})
    return [success, rollout([0, 0, 0], member=1)]


def test_step_grpo_pools_all_steps_of_a_group() -> None:
    sample, population = [1.7889] + [-0.4472] * 4, [2] + [-0.5] * 4
    assert close(numbers(step_grpo(steps())), sample)
    assert close(numbers(step_grpo(steps(), ddof=0)), population)


def test_a_malformed_step_of_a_success_is_pushed_down_like_a_failure() -> None:
    success, failure = step_grpo(steps()).advantages
    assert bool((failure == success[1]).all())


# All


@pytest.mark.parametrize("rule", CRITIC_FREE)
@given(sampled=trajectories(groups=(2, 3)))
def test_a_group_is_judged_without_the_others_of_the_batch(
    rule: Rule, sampled: list[Trajectory]
) -> None:
    together = dict(zip([t.key for t in sampled], rule(sampled).advantages, strict=True))
    for name in {t.group for t in sampled}:
        alone = [t for t in sampled if t.group == name]
        for trajectory, advantages in zip(alone, rule(alone).advantages, strict=True):
            assert close(advantages, together[trajectory.key], 1e-9)


@pytest.mark.parametrize("rule", PER_TURN)
@given(sampled=trajectories())
def test_all_tokens_of_a_turn_share_its_advantage(rule: Rule, sampled: list[Trajectory]) -> None:
    for trajectory, advantages in zip(sampled, rule(sampled).advantages, strict=True):
        for turn in advantages.split([turn.tokens for turn in trajectory.turns]):
            assert bool((turn == turn[0]).all())


@pytest.mark.parametrize("rule", CRITIC_FREE)
def test_a_rollout_without_siblings_cannot_be_judged(rule: Rule) -> None:
    with pytest.raises(GroupTooSmall, match=r"'rl/1/1' has 1; set rl\.group"):
        rule([*batch([1, 0]), *batch([1], group=1)])


@pytest.mark.parametrize("rule", CRITIC_FREE)
def test_an_empty_batch_has_no_advantages(rule: Rule) -> None:
    assert rule([]).advantages == []
