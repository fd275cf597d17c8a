"""Rules that anybody may write: what they give is checked, and the sentence names them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.core.outcome import Outcome
from palaestra.learning.compute.cooperative import run_to_end
from palaestra.learning.compute.packing import Trained
from palaestra.learning.credit.compose import parse
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.loop.batch import corrected, filtered, trained_rows, with_proximal
from palaestra.learning.loop.learner import Learner
from palaestra.learning.loop.trainer_step import TrainerStep, TrainerStepPlan
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy_loss import decoupled, pg, ppo
from palaestra.learning.losses.trained_tokens import TokenLoss, Tokens
from palaestra.learning.methods.algorithms import Algorithm, Method
from tests.learning.credit.made import batch, rollout
from tests.learning.made import call, episode, learner_of, same, sampled_rows, tiny

# ── losses ───────────────────────────────────────────────────────────────────


def scalar(tokens: Tokens) -> Tensor:
    return -(tokens.advantage * tokens.lp).mean()


def column(tokens: Tokens) -> Tensor:
    return -(tokens.advantage * tokens.lp)[:, None]


def short(tokens: Tokens) -> Tensor:
    return -(tokens.advantage * tokens.lp)[1:]


def number(tokens: Tokens) -> Any:
    return 0.5


def detached(tokens: Tokens) -> Tensor:
    return -tokens.advantage * tokens.lp.detach()


def undefined(tokens: Tokens) -> Tensor:
    return -tokens.advantage * tokens.lp * torch.log(tokens.lp)  # of a negative number


LOSSES = [
    (scalar, r"returned the shape \[\]; return one number per token.*shape \[\d+\]"),
    (column, r"returned the shape \[\d+, 1\]; return one number per token"),
    (short, r"returned the shape \[\d+\]; return one number per token"),
    (number, "returned a float; return one number per token"),
    (detached, "has no gradient"),
    (undefined, "adds up to nan over .* one finite number per token"),
]


@pytest.mark.parametrize(("loss", "message"), LOSSES)
def test_a_loss_of_the_wrong_shape_is_named_and_moves_nothing(
    loss: TokenLoss, message: str
) -> None:
    learner = learner_of(tiny(), micro_tokens=40)  # the fault shows in one of several micro-batches
    before = copy.deepcopy(learner.state()["weights"])
    with pytest.raises(
        InputError, match=f"The loss 'tests.learning.methods.test_checks:.*{message}"
    ):
        learner.update(sampled_rows(5), loss)
    assert same(before, learner.state()["weights"], 0.0)


def test_a_step_that_was_refused_leaves_no_gradient_behind() -> None:
    rows = sampled_rows(5)
    refused, untouched = learner_of(tiny(), micro_tokens=40), learner_of(tiny(), micro_tokens=40)
    with pytest.raises(InputError):
        refused.update(rows, undefined)
    for learner in (refused, untouched):
        learner.update(rows, ppo)
    assert same(refused.state()["weights"], untouched.state()["weights"], 0.0)


# ── credit ───────────────────────────────────────────────────────────────────


def ones(sampled: Sequence[Trajectory]) -> list[Tensor]:
    return [torch.ones(t.tokens, dtype=torch.float64) for t in sampled]


def nan(sampled: Sequence[Trajectory]) -> Credit:
    first, *others = ones(sampled)
    first[2] = torch.nan
    return Credit([first, *others])


def too_few(sampled: Sequence[Trajectory]) -> Credit:
    return Credit(ones(sampled)[1:])


def per_turn(sampled: Sequence[Trajectory]) -> Credit:
    return Credit([torch.ones(len(t.turns)) for t in sampled])


def one_number(sampled: Sequence[Trajectory]) -> Credit:
    return Credit([torch.ones(1) for t in sampled])


def lists(sampled: Sequence[Trajectory]) -> Credit:
    return Credit([[1.0] * t.tokens for t in sampled])  # type: ignore[misc]


def bare(sampled: Sequence[Trajectory]) -> Any:
    return ones(sampled)


def nothing(sampled: Sequence[Trajectory]) -> Any:
    return None


def infinite_targets(sampled: Sequence[Trajectory]) -> Credit:
    return Credit(ones(sampled), [torch.full_like(a, torch.inf) for a in ones(sampled)])


CREDITS = {
    nan: r"gave nan among its advantages for token 2 of rl/1/0\.0; return finite numbers",
    too_few: "gave 1 advantages for 2 rollouts; return one tensor per rollout",
    per_turn: r"gave advantages of shape \[2\] for rl/1/0\.0, a rollout of 2 turns and 6 sampled",
    one_number: r"gave advantages of shape \[1\] .* here \[6\]",
    lists: "gave advantages as a list",
    bare: "returned a list; return a `Credit`",
    nothing: "returned a NoneType; return a `Credit`",
    infinite_targets: "gave inf among its returns",
}


@pytest.mark.parametrize("expression", ["{}", "-{}", "rloo + 0.5*{}"])
@pytest.mark.parametrize("rule", CREDITS, ids=lambda rule: rule.__name__)
def test_credit_that_cannot_be_used_names_its_rule(rule: Any, expression: str) -> None:
    name = f"{__name__}:{rule.__name__}"
    with pytest.raises(InputError, match=f"The credit rule '{name}' {CREDITS[rule]}"):
        parse(expression.format(name))(batch([1.0, 0.0], turns=2, tokens=3))


# ── what rules are given ─────────────────────────────────────────────────────

NAN = float("nan")
UNSOUND = {
    "its outcome is nan": rollout([0.0], outcome=NAN),
    "the reward of turn 1 is inf": rollout([0.0, float("inf")]),
    "the critic's value in turn 0 is nan": rollout([0.0], values=[NAN]),
    "the progress before turn 0 is nan": rollout([0.0], progress=[NAN]),
    "the outcome of white is nan": rollout([0.0], slots={"outcomes": {"white": NAN}}),
}


@pytest.mark.parametrize("message", UNSOUND)
def test_a_rollout_with_a_number_that_is_none_is_refused_by_name(message: str) -> None:
    method = Method(Algorithm("", "", credit="rloo"))
    unsound = replace(UNSOUND[message], task="maze/One")
    with pytest.raises(
        InputError, match=rf"rl/1/0\.0 \(maze/One\): {message}.*leave the rollout out"
    ):
        method.credit([unsound, rollout([1.0], member=1)], {})


def test_a_turn_without_tokens_is_refused_instead_of_shifting_credit() -> None:
    with pytest.raises(InputError, match=r"0 tokens.*add its reward to the turn before"):
        Turn(tokens=0, reward=1.0)


# ── corrections and filters ──────────────────────────────────────────────────


def one_weight(tokens: Tokens) -> Tensor:
    return torch.tensor(1.0)


def no_weight(tokens: Tokens) -> Tensor:
    return torch.full_like(tokens.lp, torch.nan)


@pytest.mark.parametrize(
    ("rule", "message"),
    [(one_weight, r"returned the shape \[\]"), (no_weight, "gave nan for 2 of 2 tokens")],
)
def test_a_correction_that_cannot_be_used_is_named(rule: TokenLoss, message: str) -> None:
    name = f"{__name__}:{rule.__name__}"
    method = Method(Algorithm("", "", credit="rloo", correction=name))
    row = Trained([1, 2, 3], [False, True, True])
    with pytest.raises(InputError, match=f"The correction '{name}' {message}"):
        corrected([row], method)


def one_verdict(groups: Sequence[Sequence[Trajectory]]) -> list[bool]:
    return [True]


def test_a_filter_that_forgets_a_group_is_named() -> None:
    method = Method(Algorithm("", "", credit="rloo", filter=f"{__name__}:one_verdict"))
    two = batch([1.0, 0.0]) + batch([1.0, 0.0], group=1)
    with pytest.raises(InputError, match=r"one_verdict' gave 1 verdicts for 2 groups"):
        filtered(two, method)


# ── tokens whose sampler is unknown ──────────────────────────────────────────


def imported(member: int, reply: Sequence[int], *, known: bool) -> Any:
    """An episode of one call, with or without log-probabilities of its tokens."""
    logprobs = [-3.0] * len(reply) if known else []
    made = call(0, None, [1, 2], reply, policy="policy", logprobs=logprobs)
    return episode([made], member=member, turns=1)


def rows(*, known: bool) -> list[Trained]:
    found = rows_of(imported(0, [3, 4], known=known), "policy")
    advantage = {(found[0].key, 0): [1.0, 1.0]}
    return trained_rows(found, advantage, Aggregation.TOKEN_MEAN)


@pytest.mark.parametrize("loss", [ppo, pg, decoupled])
def test_a_step_on_tokens_of_unknown_probability_is_refused(loss: TokenLoss) -> None:
    learner = learner_of(tiny())
    learner.update(rows(known=True), loss)
    with pytest.raises(InputError, match=r"Call 0 of rl/1/0\.0 holds no log-probabilities"):
        learner.update(rows(known=False), loss)


def test_a_row_of_ones_own_is_named_by_its_number() -> None:
    bare = Trained([1, 2], [False, True], lp_old=[0.0, NAN])
    with pytest.raises(InputError, match="Call 0 of row 1 holds no log-probabilities"):
        learner_of(tiny()).update([replace(bare, lp_old=[0.0, -1.0], lp_beh=[]), bare], ppo)


@pytest.mark.parametrize("loss", [ppo, pg, decoupled])
def test_recomputed_they_are_those_of_the_present_policy(loss: TokenLoss) -> None:
    """Then the ratio is 1: the gradient is that of the plain policy gradient."""
    unknown = rows(known=False)
    learner, other = learner_of(tiny()), learner_of(tiny())
    known = with_proximal(unknown, learner.logprobs(unknown))
    assert known[0].lp_old == known[0].lp_beh
    assert known[0].lp_old[2:] == learner.logprobs(unknown)[0]
    update = learner.update(known, loss)
    assert update.gap == pytest.approx(0, abs=1e-5)
    other.update(rows(known=True), pg)
    assert same(learner.state()["weights"], other.state()["weights"])


def test_recomputing_keeps_what_the_sampler_replied() -> None:
    (row,) = with_proximal(rows(known=True), [[-0.5, -0.25]])
    assert (row.lp_old[2:], row.lp_beh[2:]) == ([-0.5, -0.25], [-3.0, -3.0])


@pytest.mark.parametrize("algorithm", ["plain", "corrected"])
def test_a_study_refuses_imports_unless_it_may_recompute(algorithm: str) -> None:
    correction = "tis" if algorithm == "corrected" else None
    method = Method(Algorithm("", "", credit="rloo", loss="ppo", correction=correction))
    solved = imported(0, [3, 4], known=False)
    failed = replace(imported(1, [5], known=False), outcome=Outcome.failure())

    def train(learner: Learner, recompute: bool) -> Any:
        plan = TrainerStepPlan(1, 1e-3, 1, length=8, recompute=recompute)
        work = TrainerStep(learner, method, plan, seed=0).learning(
            1,
            [solved, failed],
            Shaping(10, {"outcome": 1.0}, {"outcome": {"turn_cost": 0.0}}),
            {},
            {},
        )
        return run_to_end(lambda: work)()

    learner = learner_of(tiny())
    with pytest.raises(InputError, match=r"holds no log-probabilities.*recompute=True"):
        train(learner, recompute=False)
    updates, _, _ = train(learner, recompute=True)
    assert len(updates) == 1 and updates[0].ratio_max == pytest.approx(1, abs=1e-4)
