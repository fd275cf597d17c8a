"""Advised episodes: what becomes the policy's own, and the weights that correct for advice."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import ADVISOR, Episode, Step
from palaestra.core.outcome import Outcome
from palaestra.learning.compute.packing import Trained
from palaestra.learning.data.advised import (
    AdvicePlan,
    AdvisedReply,
    executed,
    importance_weight,
)
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.loop.batch import weighed
from tests.learning.made import call, episode

UP, DOWN = (5, 0), (6, 0)  # tokens of two actions


def advised(*turns: tuple[tuple[int, ...], tuple[int, ...] | None]) -> Episode:
    """An episode of turns: what the advisor proposed, and what the policy replied (None: nothing).

    The advisor acts where the policy did not reply.
    """
    calls, steps = [], []
    latest: int | None = None  # of the policy
    for proposed, replied in turns:
        advice = call(len(calls), latest, [1], proposed, policy="expert")
        calls.append(replace(advice, role=ADVISOR))
        if replied is not None:
            calls.append(call(len(calls), latest, [1], replied))
            latest = len(calls) - 1
        steps.append(
            Step(len(steps), len(calls) - 1, Action("…"), Transition(Observation("")), Signals(),
                 calls_made=len(calls))
        )  # fmt: skip
    made = episode(calls, outcome=Outcome.success(), turns=len(steps))
    return replace(made, steps=tuple(steps))


MADE = advised((UP, DOWN), (UP, None), (UP, UP), (DOWN, UP))


def test_advice_that_was_not_taken_goes_and_the_rest_is_the_policy_s() -> None:
    found = executed(MADE, "policy")
    kept = found.episode.calls
    assert [c.completion for c in kept] == [DOWN, UP, UP, UP]
    assert {c.policy for c in kept} == {"policy"}
    assert [c.role for c in kept] == ["agent", ADVISOR, "agent", "agent"]
    assert [c.parent for c in kept] == [None, 0, 0, 2]
    assert [step.call for step in found.episode.steps] == [0, 1, 2, 3]
    assert [step.calls_before for step in found.episode.steps] == [1, 2, 3, 4]
    assert found.replies == {
        0: AdvisedReply(advised=False, proposed=False),
        1: AdvisedReply(advised=True, proposed=True),
        2: AdvisedReply(advised=False, proposed=True),
        3: AdvisedReply(advised=False, proposed=False),
    }


def test_every_reply_that_acted_is_trained_once() -> None:
    found = executed(MADE, "policy").episode
    rows = rows_of(found, "policy")
    trained = sorted(
        number for row in rows for on, number in zip(row.mask, row.calls, strict=True) if on
    )
    assert trained == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [turn.call for turn in Shaping(8).trajectory(found, "policy").turns] == [0, 1, 2, 3]


def test_an_episode_without_advice_stays_as_it_is() -> None:
    plain = episode([call(0, None, [1], UP), call(1, 0, [1], DOWN)])
    found = executed(plain, "policy")
    assert found.episode == plain and not found.replies


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([(UP, DOWN), (UP, DOWN), (UP, None), (UP, None), (UP, UP)], [0, 1, 0, 0, 0]),
        ([(UP, DOWN), (UP, None), (UP, DOWN), (UP, None)], [1, 0, 1, 0]),
        ([(UP, DOWN)], [0]),
    ],
)
def test_an_intervention_counts_at_the_action_before_it(turns: list, expected: list[float]) -> None:
    made = advised(*turns)
    shaping = Shaping(8, {"outcome": 0.0, "intervention": -1.0})
    for one in (made, executed(made, "policy").episode):  # as recorded, and as learned
        assert shaping.values(one)["intervention"] == expected
    rewards = [
        t.reward for t in shaping.trajectory(executed(made, "policy").episode, "policy").turns
    ]
    assert rewards == [-number for number in expected]


# ── importance weights ───────────────────────────────────────────────────────


@given(st.floats(0.01, 0.99), st.floats(0, 0.99))
def test_weights_by_hand(likely: float, p: float) -> None:
    lp = math.log(likely)
    own, same = (importance_weight(lp, p, proposed=proposed) for proposed in (False, True))
    assert own == pytest.approx(1 / (1 - p))
    assert same == pytest.approx(likely / ((1 - p) * likely + p))
    assert 0 < same <= 1 + 1e-9 <= own + 2e-9


def test_weights_at_the_ends() -> None:
    assert importance_weight(-2.0, 1.0, proposed=True) == pytest.approx(math.exp(-2))  # a takeover
    assert importance_weight(-1e4, 0.0, proposed=True) == 1.0  # annealed
    assert importance_weight(-1e4, 0.5, proposed=True) == 0.0  # too unlikely to learn from


def test_annealing() -> None:
    plan = AdvicePlan(0.4, anneal=4)
    assert [plan.at(step) for step in (1, 2, 4, 5, 9)] == pytest.approx([0.4, 0.3, 0.1, 0, 0])
    assert AdvicePlan(0.4).at(100) == 0.4
    assert AdvicePlan(None).at(1) is None


@pytest.mark.parametrize("p", [0.2, 0.7])
@pytest.mark.parametrize("good", [0, 1])  # a good advisor, and one that is always wrong
def test_weighted_rollouts_have_the_policy_s_own_gradient_in_expectation(
    p: float, good: int
) -> None:
    """Two turns, two actions each; the whole expectation, by every outcome of every choice."""
    logits = torch.tensor([[0.3, -0.4], [1.0, 0.1]], dtype=torch.float64, requires_grad=True)
    lp = logits.log_softmax(-1)  # of the actions, by turn

    def earned(actions: tuple[int, ...]) -> float:
        return 1.0 * actions[0] + 3.0 * actions[0] * actions[1] - 0.5 * actions[1]

    outcomes = list(itertools.product(range(2), repeat=2))
    value = sum(earned(a) * (lp[0, a[0]] + lp[1, a[1]]).exp() for a in outcomes)
    (own,) = torch.autograd.grad(value, logits, retain_graph=True)
    plan, proposed = AdvicePlan(p, whole=True), (good, good)
    surrogate = torch.zeros((), dtype=torch.float64)
    for actions in outcomes:
        likely = [float(lp[t, a].detach().exp()) for t, a in enumerate(actions)]
        same = [a == advice for a, advice in zip(actions, proposed, strict=True)]
        happens = math.prod((1 - p) * pi + p * s for pi, s in zip(likely, same, strict=True))
        rows = [
            Trained(
                tokens=[9, 1, 1],
                mask=[False, True, True],
                lp_old=[0.0, *(math.log(pi) for pi in likely)],
                advantage=[earned(actions)] * 3,
                turn=[-1, 0, 1],
                rollout="rollout",
            )
        ]
        replies = {
            ("rollout", t): AdvisedReply(advised=False, proposed=s) for t, s in enumerate(same)
        }
        (row,), _ = weighed(rows, replies, plan, step=1)
        gradient = sum(row.advantage[t + 1] * lp[t, a] for t, a in enumerate(actions))
        surrogate = surrogate + happens * gradient
    (found,) = torch.autograd.grad(surrogate, logits)
    assert torch.allclose(found, own)


def test_turn_weights_touch_their_turns_alone() -> None:
    row = Trained(
        tokens=[9, 1, 2, 3, 4],
        mask=[False, True, True, False, True],
        lp_old=[0.0, math.log(0.5), math.log(0.5), 0.0, math.log(0.1)],
        advantage=[0.0, 2.0, 2.0, 0.0, 2.0],
        turn=[-1, 0, 0, -1, 1],
        rollout="r",
    )
    replies = {("r", 0): AdvisedReply(advised=True, proposed=True)}
    (found,), weights = weighed([row], replies, AdvicePlan(0.5), step=1)
    weight = 0.25 / (0.5 * 0.25 + 0.5)  # of a reply of two tokens
    assert weights == pytest.approx([weight])
    assert found.advantage == pytest.approx([0.0, 2 * weight, 2 * weight, 0.0, 2.0])
