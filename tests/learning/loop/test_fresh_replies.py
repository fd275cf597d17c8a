"""Fresh replies: what the policy would say now to a recorded history."""

from __future__ import annotations

import pytest

from palaestra.core.model import Sampling
from palaestra.learning.loop.fresh_replies import FreshReplies
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from tests.learning.made import Words, lively

HISTORY = (1, 3, 0, 1)


def policy(seed: int = 0) -> ResidentModel:
    words = Words()
    network = tiny_network(len(words.words), layers=1, width=32, heads=2, context=32, seed=seed)
    return ResidentModel("policy", lively(network, 4.0), words, slots=4, context=32)


def test_replies_end_as_those_of_a_session_do() -> None:
    fresh = FreshReplies(policy(), Sampling(1.0, 3))
    replies = fresh([HISTORY] * 64, seed=1)
    assert len({tuple(reply) for reply in replies}) > 1
    for reply in replies:
        assert 1 <= len(reply) <= 3 and 0 not in reply[:-1]  # 0 ends a reply
        assert len(reply) == 3 or reply[-1] == 0


def test_equal_seeds_give_equal_replies_and_others_do_not() -> None:
    fresh = FreshReplies(policy(), Sampling(1.0, 3))
    one, same, other = (fresh([HISTORY] * 32, seed) for seed in (1, 1, 2))
    assert one == same and one != other


def test_replies_are_those_of_the_present_weights() -> None:
    model, other = policy(), policy(seed=1)
    before = FreshReplies(model, Sampling(1.0, 3))
    wanted = FreshReplies(other, Sampling(1.0, 3))([HISTORY] * 32, seed=1)
    assert before([HISTORY] * 32, seed=1) != wanted
    model.network.load_state_dict(other.network.state_dict())
    model.updated()
    assert before([HISTORY] * 32, seed=1) == wanted


def test_no_session_may_wait_meanwhile() -> None:
    model = policy()
    model.engine.submit(HISTORY, Sampling(1.0, 1), 0)
    with pytest.raises(RuntimeError, match="sessions wait"):
        FreshReplies(model, Sampling(1.0, 1))([HISTORY], seed=1)
