"""Learning from preferences: the dense reference's gradient, in whatever pieces the work is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.data.examples.labels import mismatched
from palaestra.learning.data.examples.preferred import Label, Pair, Response
from palaestra.learning.data.rows import Row
from palaestra.learning.loop.learner import Learner
from palaestra.learning.loop.preference_learning import (
    Judged,
    Loss,
    PreferencePlan,
    prefer,
    takes_pairs,
)
from palaestra.learning.losses.preference import dpo, kto, step_dpo
from palaestra.models.local.network import DecoderNetwork
from tests.chosen import mostly_slow
from tests.learning.dense import Dense
from tests.learning.made import grouped, learner_of, same, sampled_rows, tiny

ONE_STEP = PreferencePlan(epochs=1, batch=100, learning_rate=1e-3)


def rows(count: int, seed: int = 0) -> list[Row]:
    """Rows of a policy that answers several times, observations in between."""
    return [
        Row(
            Key("made", number),
            row.tokens,
            row.mask,
            [0.0] * len(row.tokens),
            [at // 5 if on else -1 for at, on in enumerate(row.mask)],
            [0] * len(row.tokens),
        )
        for number, row in enumerate(sampled_rows(count, seed=seed))
    ]


def whole_rollouts(count: int, seed: int = 0) -> list[Response]:
    """Responses of one to three rows each."""
    found, every = [], iter(rows(3 * count, seed))
    for number in range(count):
        found.append(tuple(next(every) for _ in range(1 + number % 3)))
    return found


def pairs(count: int = 4, seed: int = 0) -> list[Pair]:
    found = whole_rollouts(2 * count, seed)
    return [Pair(a, b, 1.0) for a, b in zip(found[:count], found[count:], strict=True)]


def labels(count: int = 6, seed: int = 0) -> list[Label]:
    return [Label(one, number % 3 != 0) for number, one in enumerate(whole_rollouts(count, seed))]


def moved(network: DecoderNetwork, judged: Judged, loss: Loss, micro: int = 64) -> Learner:
    """A learner that has taken a step, so that it is no longer its reference."""
    learner = learner_of(network, micro_tokens=micro)
    list(prefer(learner, judged, loss, ONE_STEP, seed=0))
    return learner


def second_gradient(judged: Judged, loss: Loss, micro: int = 64) -> dict[str, Tensor]:
    """The gradient of a second step: the reference policy is another one by then."""
    learner = learner_of(grouped(tied=True).double(), micro_tokens=micro)
    first = 1 - learner.optimisation.betas[0]
    steps = prefer(learner, judged, loss, replace(ONE_STEP, epochs=2), seed=0)
    next(steps)
    before = {name: m.clone() for name, m in learner.state()["exp_avg"].items()}
    next(steps)
    decay = learner.optimisation.betas[0]
    return {
        name: (m - decay * before[name]) / first for name, m in learner.state()["exp_avg"].items()
    }


def dense_logprob(dense: Dense, response: Response) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for row in response:
        for at, on in enumerate(row.mask):
            if on:
                lp, _, _ = dense.reply(row.tokens[:at], row.tokens[at : at + 1])
                total = total + lp.sum()
    return total


def dense_gradient(
    before: DecoderNetwork, now: DecoderNetwork, of: Callable[[Dense, Dense], Tensor]
) -> dict[str, Tensor]:
    """The gradient of a loss of two dense models, by the second one's weights."""
    reference, policy = Dense(before), Dense(now)
    of(reference, policy).backward()
    return {name: w.grad for name, w in policy.weights.items() if w.grad is not None}


def of_pairs(judged: Sequence[Pair]) -> Callable[[Dense, Dense], Tensor]:
    def loss(reference: Dense, policy: Dense) -> Tensor:
        each = []
        for pair in judged:
            chosen, rejected = (dense_logprob(policy, r) for r in (pair.chosen, pair.rejected))
            ref_c, ref_r = (
                dense_logprob(reference, r).detach() for r in (pair.chosen, pair.rejected)
            )
            each.append(-torch.nn.functional.logsigmoid(0.1 * (chosen - rejected - ref_c + ref_r)))
        return torch.stack(each).mean()

    return loss


def of_labels(judged: Sequence[Label]) -> Callable[[Dense, Dense], Tensor]:
    def loss(reference: Dense, policy: Dense) -> Tensor:
        def gain(response: Response) -> Tensor:
            return dense_logprob(policy, response) - dense_logprob(reference, response).detach()

        z = torch.stack([gain(one).detach() for one in mismatched(judged)]).mean().clamp(min=0)
        each = []
        for label in judged:
            won = gain(label.response) - z if label.desirable else z - gain(label.response)
            each.append(1 - torch.sigmoid(0.1 * won))
        return torch.stack(each).mean()

    return loss


@pytest.mark.parametrize("kind", mostly_slow(["pairs", "labels"], "pairs"))
def test_a_step_on_whole_rollouts_has_the_dense_references_gradient(kind: str) -> None:
    judged: Judged = pairs() if kind == "pairs" else labels()
    loss: Loss = dpo if kind == "pairs" else kto
    start = grouped(tied=True).double()
    found = second_gradient(judged, loss)
    learner = moved(grouped(tied=True).double(), judged, loss)
    dense = of_pairs(judged) if kind == "pairs" else of_labels(_shuffled(judged))  # type: ignore[arg-type]
    expected = dense_gradient(start, learner.model.network, dense)
    assert found.keys() == expected.keys()
    assert same(found, expected, 1e-9)
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-3


def _shuffled(judged: Judged) -> list[Label]:
    """The order of the second epoch, on which KTO's mismatched responses depend."""
    import random

    items = list(judged)
    random.Random("0/1").shuffle(items)
    return items  # type: ignore[return-value]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), micro=st.sampled_from([32, 64, 1000]))
def test_the_gradient_does_not_depend_on_micro_batches(seed: int, micro: int) -> None:
    judged = pairs(3, seed)
    assert same(second_gradient(judged, dpo, micro), second_gradient(judged, dpo, 400), 1e-9)


def test_the_first_step_of_pairs_starts_at_log_two_and_moves_them_apart() -> None:
    learner = learner_of(tiny())
    steps = list(prefer(learner, pairs(), dpo, replace(ONE_STEP, epochs=8), seed=0))
    assert steps[0].loss == pytest.approx(0.693147, abs=1e-4) and steps[0].accuracy == 0.5
    assert steps[-1].accuracy == 1.0 and steps[-1].loss < steps[0].loss
    assert [one.step for one in steps] == list(range(1, 9)) and steps[0].steps == 8


def test_labels_move_responses_up_or_down() -> None:
    learner = learner_of(tiny())
    steps = list(prefer(learner, labels(), kto, replace(ONE_STEP, epochs=12), seed=0))
    assert steps[-1].loss < steps[0].loss and steps[-1].accuracy > 0.8


def test_batches_of_one_label_have_a_reference_point_too() -> None:
    plan = replace(ONE_STEP, batch=1)
    assert len(list(prefer(learner_of(tiny()), labels(3), kto, plan, seed=0))) == 3


def test_equal_seeds_learn_in_equal_order() -> None:
    plan = replace(ONE_STEP, batch=2)
    runs = [
        [one.figures() for one in prefer(learner_of(tiny()), pairs(), dpo, plan, seed)]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] and runs[0] != runs[2]


def test_losses_say_what_they_take() -> None:
    assert takes_pairs(dpo) and takes_pairs(step_dpo) and not takes_pairs(kto)


@pytest.mark.parametrize(("judged", "loss"), [(pairs(2), kto), (labels(3), dpo)])
def test_pairs_for_a_loss_of_labels_and_the_reverse_are_refused(judged: Judged, loss: Loss) -> None:
    with pytest.raises(InputError, match="choose another"):
        next(prefer(learner_of(tiny()), judged, loss, ONE_STEP, seed=0))
