"""GAE over tokens, turns and both: the published numbers, and the laws behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.credit.gae import (
    bilevel_gae,
    decoupled_gae,
    gae,
    length_adaptive_gae,
    turn_gae,
)
from palaestra.learning.credit.returns import reinforce
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from tests.learning.credit.made import batch, close, rollout, trajectories

Rule = Callable[..., Credit]
RULES: list[Rule] = [
    gae,
    turn_gae,
    partial(turn_gae, value_at="last"),
    bilevel_gae,
    length_adaptive_gae,
    partial(length_adaptive_gae, over="turns"),
    decoupled_gae,
]
NAN = float("nan")


def plain(rule: Rule, trajectory: Trajectory, **options: object) -> tuple[Tensor, Tensor]:
    """Advantages before whitening, and targets, of one rollout."""
    credit = rule([trajectory], whiten=False, **options)
    assert credit.returns is not None
    return credit.advantages[0], credit.returns[0]


def single_tokens(sampled: list[Trajectory]) -> list[Trajectory]:
    """The same with turns of one token."""
    return [
        replace(t, turns=tuple(replace(k, tokens=1, values=k.values[:1]) for k in t.turns))
        for t in sampled
    ]


def same(a: list[Tensor] | None, b: list[Tensor] | None) -> bool:
    assert a is not None and b is not None
    return all(close(x, y, 1e-9) for x, y in zip(a, b, strict=True))


def test_gae_over_tokens_skips_what_the_world_said() -> None:
    """Two replies of two tokens with an observation between them, whose value was 9."""
    trajectory = rollout([0, 0], outcome=1, tokens=2, values=[0.2, 0.3, 0.5, 0.6])
    advantages, targets = plain(gae, trajectory, lam=0.95)
    assert close(advantages, [0.7232, 0.6560, 0.4800, 0.4000])
    assert close(targets, [0.9232, 0.9560, 0.9800, 1.0000])
    # Had the observation's token been a step, it would change the credit of what came before.
    seen = rollout([0, 0], outcome=1, tokens=[3, 2], values=[0.2, 0.3, 9, 0.5, 0.6])
    assert close(plain(gae, seen, lam=0.95)[0][:2], [1.1053, 1.0582])


def test_whitening_comes_after_the_targets() -> None:
    trajectory = rollout([0, 0], outcome=1, tokens=2, values=[0.2, 0.3, 0.5, 0.6])
    credit = gae([trajectory], lam=0.95)
    assert close(credit.advantages[0], [1.0540, 0.6068, -0.5643, -1.0966])
    assert credit.returns is not None
    assert close(credit.returns[0], [0.9232, 0.9560, 0.9800, 1.0000])


@pytest.mark.parametrize(
    ("value_at", "values", "targets"),
    [
        (
            "first",
            [0.4, 9, 0.5, 9, 0.7, 9],
            [0.8354, 0.8354, 0.9215, 0.9215, 1, 1],
        ),
        (
            "last",
            [9, 0.4, 9, 0.5, 9, 0.7],
            [NAN, 0.8354, NAN, 0.9215, NAN, 1],
        ),
    ],
)
def test_gae_over_turns(value_at: str, values: list[float], targets: list[float]) -> None:
    trajectory = rollout([0, 0, 1], tokens=2, values=values)
    found = plain(turn_gae, trajectory, gamma=0.95, lam=0.9, value_at=value_at)
    assert close(found[0], [0.4354, 0.4354, 0.4215, 0.4215, 0.3, 0.3])
    assert close(found[1], targets)


def test_whitening_counts_tokens_or_turns_as_the_release_does() -> None:
    values = [0.5] * 4
    pair = rollout([0.25, 0], outcome=1, tokens=[3, 1], values=values)  # A: 0.75 and 0.5
    first = turn_gae([pair], value_at="first").advantages[0]
    assert close(first, [0.5, 0.5, 0.5, -1.5])  # over 4 tokens: mean 0.6875, deviation 0.125
    last = turn_gae([pair], value_at="last").advantages[0]
    root = 0.5**0.5
    assert close(last, [root, root, root, -root])  # over 2 turns


def test_gae_over_both_levels() -> None:
    trajectory = rollout([0.2, 0], outcome=1, tokens=[3, 2], values=[0.3, 0.4, 0.5, 0.6, 0.7])
    advantages, targets = plain(bilevel_gae, trajectory, lam=0.9, turn_lam=0.9)
    assert close(advantages, [0.6934, 0.6593, 0.6215, 0.3700, 0.3000])
    assert close(targets, [0.9934, 1.0594, 1.1215, 0.9700, 1.0000])


def test_gae_over_both_levels_gives_ragens_numbers() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    trajectory = rollout([1, 1], tokens=5, values=values)
    advantages, _ = plain(bilevel_gae, trajectory)
    assert close(advantages, [1.85, 1.75, 1.65, 1.55, 1.45, 0.4, 0.3, 0.2, 0.1, 0])


def test_a_turn_without_reward_still_ends() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    _, targets = plain(bilevel_gae, rollout([0, 1], tokens=5, values=values))
    assert close(targets, [0.95] * 5 + [1] * 5)  # one discount between the turns, none inside


def test_the_two_levels_have_their_own_lam() -> None:
    trajectory = rollout([0.2, 0], outcome=1, tokens=[3, 2], values=[0.3, 0.4, 0.5, 0.6, 0.7])
    advantages, _ = plain(bilevel_gae, trajectory, lam=0.9, turn_lam=0.0)
    assert close(advantages, [0.48565, 0.4285, 0.365, 0.37, 0.3])


@pytest.mark.parametrize(("length", "lam"), [(20, 0.0), (100, 0.8), (1000, 0.98)])
def test_lam_grows_with_the_length(length: int, lam: float) -> None:
    values = torch.rand(length, generator=torch.Generator().manual_seed(0)).tolist()
    one_turn = rollout([1], tokens=length, values=values)
    advantages, targets = plain(length_adaptive_gae, one_turn, alpha=0.05)
    assert close(advantages, plain(gae, one_turn, lam=lam)[0], 1e-9)
    assert close(targets, [1.0] * length, 1e-9)
    turns = rollout([0] * length, outcome=1, tokens=2, values=[v for v in values for _ in "ab"])
    advantages, targets = plain(length_adaptive_gae, turns, alpha=0.05, over="turns")
    assert close(advantages, plain(turn_gae, turns, lam=lam)[0], 1e-9)
    assert close(targets, [1.0] * (2 * length), 1e-9)


def test_short_rollouts_look_one_step_ahead() -> None:
    trajectory = rollout([0, 0, 1], values=[0.2, 0.5, 0.6])
    assert close(plain(length_adaptive_gae, trajectory)[0], [0.3, 0.1, 0.4])


@pytest.mark.parametrize(
    ("values", "reward", "advantages"),
    [
        ([0.2, 0.7], 1.0, [0.65, 0.3]),  # two tokens: lam 1/2
        ([0.1, 0.3, 0.5], -0.5, [-0.111111, -0.466667, -1.0]),  # three tokens: lam 2/3
    ],
)
def test_vapos_gae_gives_nemo_rls_numbers(
    values: list[float], reward: float, advantages: list[float]
) -> None:
    """The batch of its own test: length_adaptive_alpha 1, gae_lambda_value 1."""
    one_turn = rollout([reward], tokens=len(values), values=values)
    found, targets = plain(length_adaptive_gae, one_turn, alpha=1.0)
    assert close(found, advantages, 1e-5)
    assert close(targets, [reward] * len(values))
    lam = 1 - 1 / len(values)
    found, targets = plain(decoupled_gae, one_turn, lam=lam)
    assert close(found, advantages, 1e-5)
    assert close(targets, [reward] * len(values))


def test_decoupled_gae_has_monte_carlo_targets() -> None:
    trajectory = rollout([0, 0, 1], values=[0.2, 0.5, 0.6])
    advantages, targets = plain(decoupled_gae, trajectory, lam=0.9)
    assert close(advantages, [0.714, 0.46, 0.4])
    assert close(targets, [1, 1, 1])


@pytest.mark.parametrize("rule", RULES)
def test_a_rollout_that_was_cut_off_is_bootstrapped(rule: Rule) -> None:
    ended = rollout([0, 0], outcome=1, tokens=2, values=[0.2, 0.3, 0.5, 0.6])
    cut = replace(ended, truncated=True, bootstrap=0.5)
    discount = 0.95 if rule is bilevel_gae else 1.0
    assert float(plain(rule, ended)[1][-1]) == pytest.approx(1)
    assert float(plain(rule, cut)[1][-1]) == pytest.approx(1 + 0.5 * discount)
    gained = plain(rule, cut)[0] - plain(rule, ended)[0]
    assert float(gained[-1]) == pytest.approx(0.5 * discount)
    unused = replace(ended, bootstrap=0.5)  # a terminal state is worth nothing
    assert close(plain(rule, unused)[0], plain(rule, ended)[0])


@pytest.mark.parametrize("rule", RULES)
def test_a_missing_critic_is_named_with_the_remedy(rule: Rule) -> None:
    with pytest.raises(InputError, match=r"rl/1/0\.0 has 0 .* critic is missing; set `rl\.critic`"):
        rule(batch([1, 0]))
    short = rollout([0, 1], tokens=2, values=[0.1, 0.2, 0.3])
    with pytest.raises(InputError, match=r"turn 1 of rl/1/0\.0 has 1 for 2 tokens"):
        rule([short])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (partial(turn_gae, value_at="middle"), "value_at = 'middle'; choose one of: first, last"),
        (partial(length_adaptive_gae, over="calls"), "over = 'calls'"),
        (partial(length_adaptive_gae, alpha=0.0), "use a number above 0"),
    ],
)
def test_wrong_options_are_named(wrong: Rule, message: str) -> None:
    with pytest.raises(InputError, match=message):
        wrong([rollout([1], values=[0.5])])


@pytest.mark.parametrize("rule", RULES)
@given(sampled=trajectories())
def test_whitening_leaves_the_targets_alone(rule: Rule, sampled: list[Trajectory]) -> None:
    assert same(rule(sampled).returns, rule(sampled, whiten=False).returns)


@given(trajectories())
def test_with_lam_one_the_target_is_the_sampled_return(sampled: list[Trajectory]) -> None:
    ended = [replace(t, truncated=False) for t in sampled]
    credit = gae(ended, gamma=0.9, lam=1.0, whiten=False)
    assert same(credit.returns, reinforce(ended, gamma=0.9).advantages)


@given(trajectories(), st.floats(0, 1), st.floats(0, 1))
def test_over_turns_of_one_token_all_levels_agree(
    sampled: list[Trajectory], gamma: float, lam: float
) -> None:
    short = single_tokens(sampled)
    tokens = gae(short, gamma=gamma, lam=lam)
    for other in (
        turn_gae(short, gamma=gamma, lam=lam),
        turn_gae(short, gamma=gamma, lam=lam, value_at="last"),
        bilevel_gae(short, turn_gamma=gamma, turn_lam=lam),
        decoupled_gae(short, gamma=gamma, lam=lam, critic_lam=lam),
    ):
        assert same(tokens.advantages, other.advantages)
        assert same(tokens.returns, other.returns)


@given(trajectories(), st.floats(0, 1))
def test_a_perfect_critic_leaves_nothing_to_learn(sampled: list[Trajectory], lam: float) -> None:
    perfect = []
    for trajectory in sampled:
        ended = replace(trajectory, truncated=False)
        knows = reinforce([ended]).advantages[0].split([k.tokens for k in ended.turns])
        turns = zip(ended.turns, knows, strict=True)
        perfect.append(
            replace(ended, turns=tuple(replace(k, values=tuple(v.tolist())) for k, v in turns))
        )
    credit = gae(perfect, lam=lam, whiten=False)
    assert all(float(a.abs().max()) < 1e-9 for a in credit.advantages)


@given(trajectories())
def test_whitened_numbers_have_mean_zero_and_deviation_one(sampled: list[Trajectory]) -> None:
    tokens = torch.cat(gae(sampled).advantages)
    assert float(tokens.mean()) == pytest.approx(0, abs=1e-9)
    if len(tokens) > 1:
        assert float(tokens.std()) == pytest.approx(1, abs=1e-3)
