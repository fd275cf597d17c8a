"""Attribution: SPA-RL's rewards, and the rewards that they replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given

from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.learning.credit.gae import gae
from palaestra.learning.credit.progress_attribution import spa, spa_attributed, spa_gae, spa_rewards
from palaestra.learning.credit.rule import Credit
from palaestra.learning.credit.turn_rewards import return_to_go
from palaestra.learning.data.trajectory import Trajectory
from tests.learning.credit.made import batch, close, rollout, trajectories

Rule = Callable[..., Credit]
RULES: list[Rule] = [spa, partial(spa, overwrite=True), partial(spa_gae, overwrite=True)]


def attributed(
    contributions: Sequence[float], valid: Sequence[bool], *, outcome: float = 1.0, member: int = 0
) -> Trajectory:
    rewards = [0.25] * len(valid)  # the environment's own, which are replaced
    slots = {"contribution": list(contributions), "valid": list(valid)}
    return rollout(rewards, outcome=outcome, member=member, **slots)


GOOD = attributed([0.1, 0.5, 0.3], [True, False, True])


def test_spa_adds_contribution_and_grounding() -> None:
    assert spa_rewards(GOOD) == pytest.approx([0.6, 0.5, 0.8])
    assert spa_rewards(GOOD, alpha=2, beta=0) == pytest.approx([0.2, 1, 0.6])


def test_contributions_stand_for_the_outcome() -> None:
    (replaced,) = spa_attributed([GOOD])
    assert replaced.rewards == pytest.approx([0.6, 0.5, 0.8])
    assert replaced.total == pytest.approx(1.9)
    estimated = sum(turn.contribution or 0.0 for turn in GOOD.turns)
    assert (estimated - GOOD.outcome) ** 2 == pytest.approx(0.0100)


def test_spa_compares_what_is_still_to_come() -> None:
    other = attributed([0.2, 0.2], [True, True], member=1, outcome=0)
    credit = spa([GOOD, other])
    assert close(credit.advantages[0], [0.25, 0.3, 0.4])  # of 1.9, 1.3, 0.8 and 1.4, 0.7, 0
    assert close(credit.advantages[1], [-0.25, -0.3])


@pytest.mark.parametrize("overwrite", [False, True])
@given(sampled=trajectories())
def test_spa_is_return_to_go_of_the_replaced_rewards(
    sampled: list[Trajectory], overwrite: bool
) -> None:
    replaced = spa_attributed(sampled, overwrite=overwrite)
    ours, theirs = spa(sampled, gamma=0.5, overwrite=overwrite), return_to_go(replaced, gamma=0.5)
    assert torch.equal(torch.cat(ours.advantages), torch.cat(theirs.advantages))


def test_spa_with_overwriting_does_not_ask_the_progress_model() -> None:
    """The regression: the release's example has the same reward at every turn."""
    other = attributed([9, 9, 9], [True, True, True], member=1, outcome=0.25)
    good, bad = spa_attributed([GOOD, other], overwrite=True)
    assert good.rewards == pytest.approx([0.75 + 0.5, 0.75, 0.75 + 0.5])
    assert bad.rewards == pytest.approx([-0.75 + 0.5] * 3)
    silent = replace(GOOD, turns=tuple(replace(t, contribution=None) for t in GOOD.turns))
    assert spa_attributed([silent, other], overwrite=True)[0].rewards == good.rewards


def test_spa_gae_is_gae_of_the_replaced_rewards() -> None:
    def with_values(trajectory: Trajectory) -> Trajectory:
        turns = [replace(t, values=(k / 4,)) for k, t in enumerate(trajectory.turns)]
        return replace(trajectory, turns=tuple(turns))

    sampled = [with_values(GOOD), with_values(attributed([0, 0], [True, True], member=1))]
    ours, theirs = spa_gae(sampled, lam=0.9), gae(spa_attributed(sampled), lam=0.9)
    assert torch.equal(torch.cat(ours.advantages), torch.cat(theirs.advantages))
    undiscounted = spa_gae(sampled[:1])
    assert undiscounted.returns is not None
    assert close(undiscounted.returns[0], [1.9, 1.3, 0.8])


@pytest.mark.parametrize("rule", [spa, spa_gae])
def test_a_missing_contribution_is_named(rule: Rule) -> None:
    with pytest.raises(InputError, match=r"turn 1 of rl/1/0\.1 has none"):
        rule([GOOD, attributed([1, None], [True, True], member=1)])


@pytest.mark.parametrize("rule", RULES)
def test_a_rollout_without_siblings_cannot_be_judged(rule: Rule) -> None:
    with pytest.raises(GroupTooSmall, match=r"'rl/1/1' has 1; set rl\.group"):
        rule([*batch([1, 0]), *batch([1], group=1)])


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_batch_has_no_advantages(rule: Rule) -> None:
    assert rule([]).advantages == []
