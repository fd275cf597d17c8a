"""ArCHer's credit: a critic's advantage of each reply, for all its tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.errors import InputError
from palaestra.learning.credit.reply_advantages import archer
from tests.learning.credit import made


def test_each_token_of_a_reply_has_the_replys_advantage() -> None:
    first = made.rollout([0.0, 0.0], tokens=[2, 1], advantage=[0.25, -0.5], outcome=1.0)
    second = made.rollout([0.0], tokens=3, advantage=[0.05], member=1)
    found = archer([first, second]).advantages
    assert [a.tolist() for a in found] == [[0.25, 0.25, -0.5], [0.05, 0.05, 0.05]]


def test_the_outcome_and_the_other_rollouts_do_not_count() -> None:
    rollout = made.rollout([0.0], advantage=[0.3])
    better = replace(rollout, outcome=1.0)
    alone, together = archer([rollout]).advantages, archer([better, rollout]).advantages
    assert alone[0].tolist() == together[0].tolist() == together[1].tolist()


def test_a_reply_that_no_critic_judged_is_an_error() -> None:
    rollout = made.rollout([0.0, 0.0], advantage=[0.3, None])
    with pytest.raises(InputError, match="has none; fill it in, or choose"):
        archer([rollout])
