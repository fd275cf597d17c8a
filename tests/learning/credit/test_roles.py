"""Credit of roles, trees and segments: the published numbers, and what each rule compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.gae import turn_gae
from palaestra.learning.credit.returns import drgrpo, grpo
from palaestra.learning.credit.roles import (
    improvements,
    malt,
    malt_values,
    marft,
    role_return,
    spiral,
    supo,
    waltz,
)
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from tests.learning.credit.made import QUARTERS, batch, close, rollout, scalars, trajectories

# MARFT


def team(outcome: float = 1.0) -> Trajectory:
    """Two agents in one environment step; the second is the last to speak."""
    return rollout(
        [0, 0], outcome=outcome, values=[0.3, 0.5], role=["first", "second"], step=[0, 0]
    )


def test_marft_looks_ahead_to_the_next_agent_of_the_step() -> None:
    credit = marft([team()], normalise=False)
    assert close(credit.advantages[0], [0.6653, 0.5])
    assert credit.returns is not None
    assert close(credit.returns[0], [0.9652, 1.0], 1e-4)


def test_marft_reads_and_trains_the_value_before_a_turns_first_token() -> None:
    long = rollout([0, 0], outcome=1, tokens=[2, 3], values=[0.3, 9, 0.5, 9, 9])
    credit = marft([long], normalise=False)
    assert close(credit.advantages[0], [0.6653, 0.6653, 0.5, 0.5, 0.5])
    assert credit.returns is not None
    nan = float("nan")
    assert close(credit.returns[0], [0.9652, nan, 1.0, nan, nan], 1e-4)


def test_marft_normalises_over_turns_that_have_an_advantage() -> None:
    calm = rollout([0], outcome=0.5, values=[0.5], member=1)  # its advantage is exactly 0
    raw = torch.tensor([0.66525, 0.5], dtype=torch.float64)
    expected = (raw - raw.mean()) / raw.std(correction=0)
    credit = marft([team(), calm])
    assert close(credit.advantages[0], expected)
    assert close(credit.advantages[1], [-raw.mean() / raw.std(correction=0)])
    everywhere_calm = marft([calm, replace(calm, key=Key("rl/1", 0, 2))])
    assert torch.cat(everywhere_calm.advantages).tolist() == [0, 0]


@given(trajectories())
def test_marft_is_turn_level_gae_whoever_speaks(sampled: list[Trajectory]) -> None:
    ours = marft(sampled, gamma=0.9, lam=0.8, normalise=False)
    theirs = turn_gae(sampled, gamma=0.9, lam=0.8, whiten=False)
    assert torch.equal(torch.cat(ours.advantages), torch.cat(theirs.advantages))
    assert ours.returns is not None and theirs.returns is not None
    trained = ~torch.cat(ours.returns).isnan()
    assert int(trained.sum()) == sum(len(t.turns) for t in sampled)
    assert torch.equal(torch.cat(ours.returns)[trained], torch.cat(theirs.returns)[trained])


# SPIRAL


def games(returns: Sequence[float], *, first: int = 0, turns: int = 2) -> list[Trajectory]:
    """Zero-sum games of two players who speak in turn; `returns` are player 0's."""
    return [
        rollout(
            [0.0] * turns,
            member=first + member,
            role=[f"player{k % 2}" for k in range(turns)],
            slots={"outcomes": {"player0": value, "player1": -value}, "task": "poker"},
        )
        for member, value in enumerate(returns)
    ]


def test_spiral_subtracts_a_running_mean_per_role() -> None:
    credit = spiral(games([1, -1, 1]))
    expected = torch.tensor([1.0, -1.05, 1.0025], dtype=torch.float64)
    assert close(torch.stack([a[0] for a in credit.advantages]), expected, 1e-12)
    assert close(torch.stack([a[1] for a in credit.advantages]), -expected, 1e-12)
    baselines = {"poker/player0": 0.047625, "poker/player1": -0.047625}
    assert credit.state == pytest.approx(baselines)


def test_spiral_goes_on_from_its_state() -> None:
    whole = spiral(games([1, -1, 1]))
    start = spiral(games([1]))
    assert start.state == pytest.approx({"poker/player0": 0.05, "poker/player1": -0.05})
    middle = spiral(games([-1], first=1), state=start.state)
    assert middle.state["poker/player0"] == pytest.approx(-0.0025)
    rest = spiral(games([1], first=2), state=middle.state)
    assert torch.equal(rest.advantages[0], whole.advantages[2])
    assert rest.state == whole.state
    assert start.state["poker/player0"] == pytest.approx(0.05), "a state given is not changed"


def test_spiral_subtracts_before_it_updates_by_default() -> None:
    """The regression: updating first takes part of the return into its own baseline."""
    assert float(spiral(games([1])).advantages[0][0]) == 1.0
    assert float(spiral(games([1]), update_first=True).advantages[0][0]) == pytest.approx(0.95)


def test_spiral_discounts_over_the_turns_of_the_role() -> None:
    credit = spiral(games([1], turns=5), gamma=0.5)
    assert close(credit.advantages[0], [0.25, -0.5, 0.5, -1, 1])


def test_spiral_keeps_a_baseline_for_each_game() -> None:
    poker, other = games([1]), games([1], first=1)
    dice_games = [replace(trajectory, task="dice") for trajectory in other]
    credit = spiral(poker + dice_games)
    assert [float(a[0]) for a in credit.advantages] == [1, 1]
    assert set(credit.state) == {f"{g}/player{p}" for g in ("poker", "dice") for p in (0, 1)}


@given(st.permutations(range(5)))
def test_spiral_takes_games_in_the_order_of_their_keys(order: list[int]) -> None:
    straight = games([1, -1, 0.5, 1, -0.25])
    credit, permuted = spiral(straight), spiral([straight[i] for i in order])
    assert all(
        torch.equal(advantages, credit.advantages[i])
        for advantages, i in zip(permuted.advantages, order, strict=True)
    )
    assert permuted.state == credit.state


def test_a_role_earns_its_outcome_and_its_own_rewards() -> None:
    game = rollout(
        [0.25, -0.5],
        outcome=7,
        role=["player0", "player1"],
        slots={"outcomes": {"player0": 1.0, "player1": -1.0}},
    )
    assert role_return(game, "player0") == 1.25
    assert role_return(game, "player1") == -1.5
    assert role_return(replace(game, outcomes={}), "player0") == game.total == 6.75


# MALT


def tree(leaves: Sequence[float] = (1, 0, 0, 0, 1, 1, 1, 0)) -> list[Trajectory]:
    """Two generators, each with two verifiers, each with two refinements."""
    return [
        rollout(
            [0, 0, 0],
            outcome=outcome,
            member=member,
            tokens=[1, 2, 1],
            role=["generator", "verifier", "refiner"],
            slots={"parents": (f"g{member // 4 + 1}", f"v{member // 2 + 1}")},
        )
        for member, outcome in enumerate(leaves)
    ]


def test_a_node_is_worth_the_mean_of_its_children() -> None:
    values = {node[-1]: value for node, value in malt_values(tree()).items()}
    assert values == {"v1": 0.5, "v2": 0, "v3": 1, "v4": 0.5, "g1": 0.25, "g2": 0.75}


def test_malt_labels_nodes_by_a_threshold_that_ties_do_not_pass() -> None:
    credit = malt(tree(), binarise=True)
    assert [float(a[0]) for a in credit.advantages] == [-0.5] * 4 + [0.5] * 4  # g1, g2
    verifiers = [float(a[1]) for a in credit.advantages[::2]]
    assert verifiers == [-0.5, -0.5, 0.5, -0.5]
    assert [float(a[3]) for a in credit.advantages[:2]] == [0.5, -0.5]


def test_malt_without_labels_subtracts_the_threshold_from_values() -> None:
    first = malt(tree()).advantages[0]
    assert first.tolist() == [-0.25, 0, 0, 0.5]
    assert malt(tree(), theta=0.25).advantages[0].tolist() == [0, 0.25, 0.25, 0.75]


def test_malt_compares_siblings() -> None:
    credit = malt(tree(), siblings=True)
    assert credit.advantages[0].tolist() == [-0.25, 0.25, 0.25, 0.5]
    assert credit.advantages[1].tolist() == [-0.25, 0.25, 0.25, -0.5]
    assert credit.advantages[4].tolist() == [0.25, 0.25, 0.25, 0]
    labelled = malt(tree(), siblings=True, binarise=True)
    assert labelled.advantages[0].tolist() == [-0.5, 0, 0, 0.5]


def test_an_only_child_has_no_sibling_to_be_better_than() -> None:
    chain = [replace(t, parents=("g", f"v{t.key.member}")) for t in tree([1, 0])]
    for advantages in malt(chain, siblings=True).advantages:
        assert float(advantages[0]) == 0.0
        assert float(advantages[3]) == 0.0


def test_leaves_may_have_ids_of_their_own() -> None:
    named = [replace(t, parents=(*t.parents, f"r{t.key.member}")) for t in tree()]
    for siblings in (False, True):
        ours = malt(named, siblings=siblings).advantages
        theirs = malt(tree(), siblings=siblings).advantages
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_in_a_full_tree_a_node_is_worth_the_mean_of_its_leaves(
    wide: int, deep: int, data: st.DataObject
) -> None:
    count = wide * deep * 2
    totals = data.draw(st.lists(QUARTERS, min_size=count, max_size=count))
    leaves = [
        rollout(
            [0, 0, 0],
            outcome=total,
            member=i,
            slots={"parents": (f"g{i // (2 * deep)}", f"v{i // 2}")},
        )
        for i, total in enumerate(totals)
    ]
    values = malt_values(leaves)
    for node, value in values.items():
        below = [t.total for t in leaves if t.parents[: len(node) - 1] == node[1:]]
        assert value == pytest.approx(sum(below) / len(below))


def test_an_uneven_tree_counts_branches_and_not_leaves() -> None:
    uneven = malt_values([tree([1])[0], *tree()[2:4]])  # g1: v1 [1], v2 [0, 0]
    assert uneven["rl/1/0", "g1"] == 0.5


def test_trees_of_different_tasks_do_not_meet() -> None:
    other = [replace(t, key=Key("rl/1", 1, t.key.member), group="rl/1/1") for t in tree([1] * 8)]
    values = malt_values(tree() + other)
    assert values["rl/1/0", "g1"] == 0.25
    assert values["rl/1/1", "g1"] == 1.0


def test_samples_that_share_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="no trajectory has `parents`"):
        malt(batch([1, 0]))
    too_deep = replace(tree()[0], parents=("g1", "v1", "r1", "x1"))
    with pytest.raises(InputError, match=r"rl/1/0\.0 has 4 nodes .* only 3 turns"):
        malt([too_deep])


# WaltzRL


def waltzing(scores: Sequence[float], *, valid: bool = True, member: int = 0) -> Trajectory:
    """Replies with these scores and a comment between any two."""
    rewards, roles = [scores[0]], ["agent"]
    for score in scores[1:]:
        rewards += [0.0, score]
        roles += ["feedback", "agent"]
    usable = [valid or role == "agent" for role in roles]
    return rollout(rewards, member=member, role=roles, valid=usable)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (1, 1)])
def test_a_comment_earns_what_the_partner_improves(before: float, after: float) -> None:
    gained = improvements(waltzing([before, after]), "feedback", "agent")
    assert gained == [0, after - before, 0]


def test_a_comment_that_no_one_answers_improves_nothing() -> None:
    unanswered = rollout([1, 0], role=["agent", "feedback"])
    unasked = rollout([0, 1], role=["feedback", "agent"])
    assert improvements(unanswered, "feedback", "agent") == [0, 0]
    assert improvements(unasked, "feedback", "agent") == [0, 0]
    longer = improvements(waltzing([0, 1, 0.5]), "feedback", "agent")
    assert longer == [0, 1, 0, -0.5, 0]


def test_waltz_whitens_the_weighted_rewards_of_each_role() -> None:
    sampled = [waltzing(s, member=m) for m, s in enumerate([(0, 1), (1, 0), (1, 1)])]
    credit = waltz(sampled)
    comments = torch.stack([a[1] for a in credit.advantages])
    rewards = torch.tensor([0.75, -0.55, 0.10], dtype=torch.float64)
    assert close(comments, (rewards - rewards.mean()) / rewards.std())
    replies = torch.cat([a[::2] for a in credit.advantages])
    scores = torch.tensor([0, 1, 1, 0, 1, 1], dtype=torch.float64)
    assert close(replies, (scores - scores.mean()) / scores.std())


def test_a_malformed_comment_loses_its_form_reward() -> None:
    pair = [waltzing([0, 0]), waltzing([0, 0], valid=False, member=1)]
    good, bad = waltz(pair).advantages
    assert float(good[1]) > 0 > float(bad[1])
    without = waltz(pair, form=0.0)
    assert torch.cat(without.advantages).tolist() == [0] * 6


# SUPO, DeepMiner, MEM1


def summarised() -> list[Trajectory]:
    """Returns 1, 0, 0, 1: the first has three segments, the second never finished."""
    first = rollout([0, 0, 0], outcome=1, tokens=2, segment=[0, 1, 2])
    others = [rollout([0], outcome=o, member=m) for m, o in enumerate([0.0, 0.0, 1.0], 1)]
    return [first, replace(others[0], truncated=True), *others[1:]]


def test_supo_counts_a_rollout_once_and_credits_all_its_segments() -> None:
    credit = supo(summarised())
    assert close(scalars(credit), [0.8660, 0, -0.8660, 0.8660])
    assert len(credit.advantages[0]) == 6


def test_counting_segments_would_shift_the_mean() -> None:
    """The regression: four segments of return 1 and two of 0 have mean 0.6667."""
    sampled = summarised()
    centre = 1 - scalars(supo(sampled, std=False))[0]
    assert float(centre) == 0.5
    votes = [t.total for t in sampled for _ in t.turns]
    assert sum(votes) / len(votes) == pytest.approx(0.6667, abs=5e-5)


def test_an_unfinished_rollout_keeps_its_vote() -> None:
    finished = [replace(t, truncated=False) for t in summarised()]
    plain, masked = scalars(grpo(finished)).tolist(), scalars(supo(summarised())).tolist()
    assert scalars(supo(finished)).tolist() == plain
    assert masked == [plain[0], 0, plain[2], plain[3]]


@given(trajectories())
def test_supo_without_truncation_is_a_group_rule(sampled: list[Trajectory]) -> None:
    finished = [replace(t, truncated=False) for t in sampled]
    assert torch.equal(scalars(supo(finished)), scalars(grpo(finished)))
    assert torch.equal(scalars(supo(finished, std=False)), scalars(drgrpo(finished)))


def test_a_windowed_rollout_is_credited_like_the_whole() -> None:
    """DeepMiner's window of 3 that slides by 2 over 7 turns trains {1,2,3}, {4,5}, {6,7}."""
    windows = [0, 0, 0, 1, 1, 2, 2]
    slid = rollout([0] * 7, outcome=1, tokens=3, segment=windows)
    unslid = rollout([0] * 7, outcome=1, tokens=3)
    other = rollout([0] * 7, member=1)
    assert torch.equal(supo([slid, other]).advantages[0], supo([unslid, other]).advantages[0])


def test_a_rollout_without_siblings_cannot_be_judged() -> None:
    with pytest.raises(GroupTooSmall, match=r"'rl/1/1' has 1; set rl\.group"):
        supo([*summarised(), *batch([1], group=1)])


@pytest.mark.parametrize("rule", [marft, spiral, malt, waltz, supo])
def test_an_empty_batch_has_no_advantages(rule: Callable[..., Credit]) -> None:
    assert rule([]).advantages == []
