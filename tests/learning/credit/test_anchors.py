"""Anchor credit: steps taken in equal states are compared, and steps in other states are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.anchors import anchor, gigpo
from palaestra.learning.credit.returns import drgrpo, grpo, rloo
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from tests.learning.credit.made import close, rollout, trajectories

Rule = Callable[..., Credit]
RULES: list[Rule] = [anchor, gigpo]


def crossing() -> list[Trajectory]:
    """Four rollouts that meet in one state at their third step, and end at steps 5, 7, 8, 8."""
    return [
        rollout(
            [0.0] * steps,
            outcome=outcome,
            member=member,
            tokens=2,
            anchor=["meeting" if k == 2 else f"{member}/{k}" for k in range(steps)],
        )
        for member, (steps, outcome) in enumerate([(5, 1.0), (7, 1.0), (8, 0.0), (8, 0.0)])
    ]


def at_meeting(credit: Credit) -> torch.Tensor:
    """The advantage of each rollout's third step."""
    assert all(bool(a[4] == a[5]) for a in credit.advantages), "the tokens of a step differ"
    return torch.stack([a[4] for a in credit.advantages])


def without_anchors(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, turns=tuple(replace(t, anchor=None) for t in trajectory.turns))


def test_the_published_numbers() -> None:
    assert close(at_meeting(anchor(crossing())), [0.4732, 0.3853, -0.4293, -0.4293])
    assert close(at_meeting(gigpo(crossing())), [0.9732, 0.8853, -0.9293, -0.9293])
    normalised = gigpo(crossing(), normalise=True)
    assert close(at_meeting(normalised), [1.8183, 1.6412, -1.7298, -1.7298])


def test_the_episode_part_has_two_public_forms() -> None:
    """One vote per rollout (the paper), or one per step, as the release does by default.

    Steps 5, 7, 8, 8 with returns 1, 1, 0, 0: the mean is 12 / 28, the deviation 0.5040.
    """
    episodes = partial(gigpo, crossing(), omega=0.0)
    assert close(at_meeting(episodes()), [0.5, 0.5, -0.5, -0.5])
    assert close(at_meeting(episodes(mean_over="rollouts")), [0.5, 0.5, -0.5, -0.5])
    by_steps = at_meeting(episodes(mean_over="steps"))
    assert close(by_steps, [0.5714, 0.5714, -0.4286, -0.4286])
    scaled = at_meeting(episodes(mean_over="steps", normalise=True))
    assert close(scaled, [1.1339, 1.1339, -0.8504, -0.8504])
    both = gigpo(crossing(), mean_over="steps")
    assert close(at_meeting(both), [1.0447, 0.9567, -0.8578, -0.8578])
    with pytest.raises(InputError, match="mean_over"):
        episodes(mean_over="turns")


def test_turns_of_one_step_vote_once_in_the_mean_over_steps() -> None:
    team = rollout([0, 0], outcome=1, step=[0, 0], anchor=["start", "start"])
    single = rollout([0, 0], member=1, anchor=["start", "hall"])
    credit = gigpo([team, single], omega=0.0, mean_over="steps")
    assert close(credit.advantages[0], [2 / 3, 2 / 3])  # one step against two: the mean is 1/3
    assert close(credit.advantages[1], [-1 / 3, -1 / 3])


def test_what_is_compared_is_the_discounted_return_from_the_state_on() -> None:
    first, second = anchor(crossing()[:2]).advantages
    assert close(first[4] - second[4], 0.9025 - 0.8145)
    undiscounted = anchor(crossing(), gamma=1.0)
    assert close(at_meeting(undiscounted), [0.5, 0.5, -0.5, -0.5])


def test_a_state_that_no_one_else_met_earns_no_step_credit() -> None:
    for advantages in anchor(crossing()).advantages:
        assert bool((advantages[:4] == 0).all())
        assert bool((advantages[6:] == 0).all())
    for normalise in (False, True):
        alone = [rollout([0.25], outcome=1, member=m, anchor=[f"{m}"]) for m in range(3)]
        advantages = torch.cat(anchor(alone, normalise=normalise).advantages)
        assert advantages.tolist() == [0, 0, 0]


def test_a_turn_whose_state_is_unknown_is_compared_with_nothing() -> None:
    pair = [
        rollout([0, 0], outcome=outcome, member=member, anchor=["start", None])
        for member, outcome in enumerate([1.0, 0.0])
    ]
    first, second = anchor(pair, gamma=1.0).advantages
    assert first.tolist() == [0.5, 0]
    assert second.tolist() == [-0.5, 0]


def test_an_empty_key_is_a_state_like_any_other() -> None:
    pair = [rollout([0], outcome=o, member=m, anchor=[""]) for m, o in enumerate([1.0, 0.0])]
    assert torch.cat(anchor(pair).advantages).tolist() == [0.5, -0.5]


def test_a_rollout_that_loops_is_compared_with_itself() -> None:
    loop = rollout([0, 0, 0], outcome=1, anchor=["door", "wall", "door"])
    straight = rollout([0], outcome=1, member=1, anchor=["door"])
    credit = anchor([loop, straight], gamma=0.5)
    mean = (0.25 + 1 + 1) / 3  # of the two visits of the loop and the one of the other
    assert close(credit.advantages[0], [0.25 - mean, 0, 1 - mean])
    assert close(credit.advantages[1], [1 - mean])


def test_equal_states_of_different_tasks_are_not_compared() -> None:
    good = [rollout([0], outcome=1, member=m, anchor=["door"]) for m in range(2)]
    bad = [rollout([0], group=1, member=m, anchor=["door"]) for m in range(2)]
    assert torch.cat(anchor(good + bad).advantages).tolist() == [0, 0, 0, 0]


def test_turns_of_one_environment_step_are_one_step() -> None:
    """A planner and an actor: one vote, one reward, no discount between the two."""
    team = rollout(
        [0.25, 0.25, 0, 0],
        outcome=1,
        tokens=[1, 2, 1, 1],
        role=["planner", "actor"] * 2,
        step=[0, 0, 1, 1],
        anchor=["start", "start", "door", "door"],
    )
    single = rollout([0, 0], member=1, anchor=["start", "hall"])
    credit = anchor([team, single], gamma=0.5)
    assert close(credit.advantages[0], [0.5, 0.5, 0.5, 0, 0])  # (0.5 + 0.5 * 1 - 0) / 2
    assert close(credit.advantages[1], [-0.5, 0])


@given(trajectories(), st.floats(0, 2), st.booleans())
def test_gigpo_is_the_sum_of_two_rules(
    sampled: list[Trajectory], omega: float, normalise: bool
) -> None:
    episode = grpo(sampled) if normalise else drgrpo(sampled)
    steps = anchor(sampled, normalise=normalise)
    credit = gigpo(sampled, omega=omega, normalise=normalise)
    for total, one, other in zip(
        credit.advantages, episode.advantages, steps.advantages, strict=True
    ):
        assert close(total, one + omega * other, 1e-12)


@given(trajectories(groups=(1, 1)))
def test_without_its_step_part_gigpo_is_leave_one_out_shrunk(sampled: list[Trajectory]) -> None:
    factor = (len(sampled) - 1) / len(sampled)
    pairs = zip(gigpo(sampled, omega=0.0).advantages, rloo(sampled).advantages, strict=True)
    for shrunk, full in pairs:
        assert close(shrunk, factor * full, 1e-12)


def test_where_no_state_repeats_gigpo_is_drgrpo() -> None:
    apart = [
        rollout([0, 0], outcome=outcome, member=member, anchor=[f"{member}a", f"{member}b"])
        for member, outcome in enumerate([1.0, 0.5, 0.0])
    ]
    for ours, theirs in zip(gigpo(apart).advantages, drgrpo(apart).advantages, strict=True):
        assert torch.equal(ours, theirs)


SCENES = ["a red door, a key", "a red door, a kex", "a red door, a box", "an endless hall"]


def scenes(order: list[int]) -> list[Trajectory]:
    outcomes = [1.0, 0.5, 0.25, 0.0]
    return [rollout([0], outcome=outcomes[i], member=i, anchor=[SCENES[i]]) for i in order]


def test_similar_states_are_compared_where_asked_for() -> None:
    sampled = scenes([0, 1, 2, 3])
    assert torch.cat(anchor(sampled).advantages).tolist() == [0, 0, 0, 0]
    # 16 of 17 letters agree in the first two scenes (ratio 0.94), 14 in the third
    close_ones = torch.cat(anchor(sampled, similarity=0.9).advantages)
    assert close_ones.tolist() == [0.25, -0.25, 0, 0]
    loosely = torch.cat(anchor(sampled, similarity=0.8).advantages)
    mean = 1.75 / 3
    assert close(loosely, [1 - mean, 0.5 - mean, 0.25 - mean, 0])


@given(st.permutations(range(4)), st.floats(0.3, 1.0))
def test_similar_states_do_not_depend_on_the_order_of_the_batch(
    order: list[int], similarity: float
) -> None:
    straight = anchor(scenes([0, 1, 2, 3]), similarity=similarity).advantages
    permuted = anchor(scenes(order), similarity=similarity).advantages
    assert [float(a) for a in permuted] == pytest.approx([float(straight[i]) for i in order])


@given(trajectories())
def test_only_equal_texts_are_entirely_similar(sampled: list[Trajectory]) -> None:
    pairs = zip(anchor(sampled).advantages, anchor(sampled, similarity=1.0).advantages, strict=True)
    assert all(torch.equal(exact, similar) for exact, similar in pairs)


def test_long_states_that_share_their_letters_only_are_not_similar() -> None:
    """Frequent letters of long texts count: they distinguish such texts."""
    one, other = "ab" * 200 + "c" * 10, "ab" * 200 + "d" * 10
    pair = [rollout([0], outcome=1, anchor=[one]), rollout([0], member=1, anchor=[other])]
    assert torch.cat(anchor(pair, similarity=0.95).advantages).tolist() == [0.5, -0.5]
    assert torch.cat(anchor(pair, similarity=0.99).advantages).tolist() == [0, 0]


@pytest.mark.parametrize("rule", RULES)
def test_a_world_without_state_keys_is_refused(rule: Rule) -> None:
    with pytest.raises(InputError, match="declares no state keys"):
        rule([without_anchors(trajectory) for trajectory in crossing()])


@pytest.mark.parametrize("rule", [*RULES, partial(gigpo, normalise=True)])
def test_a_rollout_without_siblings_cannot_be_judged(rule: Rule) -> None:
    alone = rollout([0], outcome=1, group=1, anchor=["door"])
    with pytest.raises(GroupTooSmall, match=r"'rl/1/1' has 1; set rl\.group"):
        rule([*crossing(), alone])


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_batch_has_no_advantages(rule: Rule) -> None:
    assert rule([]).advantages == []
