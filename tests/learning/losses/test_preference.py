"""Preference losses, and their gradients through the advantages of single tokens."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.compute.packing import Trained
from palaestra.learning.data.examples.labels import mismatched
from palaestra.learning.data.examples.preferred import Label
from palaestra.learning.data.rows import Row
from palaestra.learning.losses.policy_loss import pg
from palaestra.learning.losses.preference import (
    as_advantages,
    coefficients,
    dpo,
    implicit_reward,
    kto,
    response_logprobs,
    step_dpo,
)
from palaestra.learning.methods.component import Kind, Need, find
from tests.learning.made import learner_of, tiny

numbers = st.floats(-30, 30)


def fp64(*values):
    return torch.tensor(values, dtype=torch.float64)


# ── losses ───────────────────────────────────────────────────────────────────


def test_a_step_pair_gives_the_published_margin_loss_and_scores():
    chosen, rejected, zero = fp64(1.0), fp64(-0.5), fp64(0.0)
    scores = [float(implicit_reward(lp, zero)) for lp in (chosen, rejected)]
    assert scores == pytest.approx([0.10, -0.05])
    assert scores[0] - scores[1] == pytest.approx(0.15)
    for loss in (dpo, step_dpo):
        assert float(loss(chosen, rejected, zero, zero, beta=0.1)) == pytest.approx(
            0.6210, abs=5e-5
        )


def test_label_smoothing_hedges_between_a_pair_and_its_mirror():
    chosen, rejected, zero = fp64(1.0), fp64(-0.5), fp64(0.0)
    plain, mirrored = dpo(chosen, rejected, zero, zero), dpo(rejected, chosen, zero, zero)
    hedged = dpo(chosen, rejected, zero, zero, label_smoothing=0.1)
    assert float(hedged) == pytest.approx(float(0.9 * plain + 0.1 * mirrored))
    with pytest.raises(InputError, match="label_smoothing"):
        dpo(chosen, rejected, zero, zero, label_smoothing=0.5)


@pytest.mark.parametrize(
    ("h", "desirable", "expected"),
    [(2.0, True, 0.4514), (2.0, False, 0.5486), (-1.0, False, 0.4738)],
)
def test_kto_gives_the_published_losses(h, desirable, expected):
    label = torch.tensor([desirable])
    loss = kto(fp64(h), fp64(0.0), label, fp64(0.0, 0.1), beta=0.1)  # z0 = 0.05
    assert float(loss) == pytest.approx(expected, abs=5e-5)


def test_ktos_reference_point_is_a_mean_never_negative_and_carries_no_gradient():
    label = torch.tensor([True, False])
    policy, ref = fp64(2.0, -1.0), fp64(0.0, 0.0)
    below = kto(policy, ref, label, fp64(-3.0, 1.0))
    assert torch.equal(below, kto(policy, ref, label, fp64(0.0)))
    kl = fp64(0.5, 0.7).requires_grad_()
    policy.requires_grad_()
    kto(policy, ref, label, kl).sum().backward()
    assert kl.grad is None
    assert policy.grad is not None
    with pytest.raises(InputError, match="mismatched"):
        kto(policy, ref, label, fp64())


def test_kto_weighs_the_two_kinds_of_labels():
    policy, ref, kl = fp64(2.0, 2.0), fp64(0.0, 0.0), fp64(0.05)
    label = torch.tensor([True, False])
    plain = kto(policy, ref, label, kl)
    heavy = kto(policy, ref, label, kl, weight_desirable=4 / 3, weight_undesirable=0.5)
    assert heavy.tolist() == pytest.approx(
        [4 / 3 * float(plain[0]), 0.5 * float(plain[1])], rel=1e-14
    )


@given(numbers, numbers, numbers, numbers)
def test_preference_pulls_the_chosen_up_and_the_rejected_down_alike(c, r, rc, rr):
    refs = {"ref_chosen": fp64(rc), "ref_rejected": fp64(rr)}
    up, down = coefficients(partial(dpo, **refs), fp64(c), fp64(r))
    assert float(up) == pytest.approx(-float(down))
    assert 0 <= float(up) <= 0.1  # at most beta
    if (c - rc) == (r - rr):
        assert float(up) == pytest.approx(0.05)


@given(numbers, numbers, st.booleans(), st.floats(-5, 5))
def test_kto_pulls_by_the_label(h, ref, desirable, kl):
    label = torch.tensor([desirable])
    (pull,) = coefficients(lambda lp: kto(lp, fp64(ref), label, fp64(kl)), fp64(h))
    assert (float(pull) >= 0) == desirable or float(pull) == 0
    assert abs(float(pull)) <= 0.1 / 4 + 1e-12


@given(numbers, numbers)
def test_swapping_policy_and_reference_mirrors_a_pair(c, r):
    zero = fp64(0.0)
    assert torch.allclose(
        dpo(fp64(c), fp64(r), zero, zero),
        dpo(zero, zero, fp64(c), fp64(r)) + (-implicit_reward(fp64(c), fp64(r))),
    )


@pytest.mark.parametrize("loss", [dpo, step_dpo, kto])
def test_losses_are_registered_and_need_a_reference(loss):
    part = find(Kind.PREFERENCE, f"{loss.__module__}:{loss.__name__}")
    assert part.function is loss
    assert Need.REFERENCE in part.needs
    assert "beta" in part.options


# ── through tokens ───────────────────────────────────────────────────────────


class Network(nn.Module):
    """A causal language model in fp64: a running mean of embeddings, one hidden layer."""

    def __init__(self, seed: int, vocabulary: int = 11, width: int = 7) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)

        def matrix(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=g, dtype=torch.float64))

        self.embedding, self.inner = matrix(vocabulary, width), matrix(width, width)
        self.outer = matrix(width, vocabulary)

    def forward(self, row: Row) -> Tensor:
        """Log-probabilities of the row's trained tokens."""
        tokens = torch.tensor(row.tokens)
        sums = self.embedding[tokens].cumsum(0)
        means = sums / torch.arange(1, len(tokens) + 1, dtype=torch.float64)[:, None]
        lp = (torch.tanh(means @ self.inner) @ self.outer).log_softmax(-1)
        return lp[:-1].gather(1, tokens[1:, None])[:, 0][torch.tensor(row.mask[1:])]


POLICY, REFERENCE = Network(0), Network(1)


def rows(count, seed):
    g = torch.Generator().manual_seed(seed)
    found = []
    for member in range(count):
        n = int(torch.randint(4, 12, (1,), generator=g))
        mask = [False, *(torch.rand(n - 2, generator=g) < 0.6).tolist(), True]
        tokens = torch.randint(11, (n,), generator=g).tolist()
        found.append(Row(Key("rl/1", 0, member), tokens, mask, [0.0] * n, [0] * n))
    return found


def gradient(loss):
    """The gradient of a loss by all weights of the policy."""
    parts = torch.autograd.grad(loss, list(POLICY.parameters()))
    return torch.cat([part.flatten() for part in parts])


def exact(network, responses):
    """Log-probabilities with gradient, whole responses at once."""
    return torch.stack([sum(network(row).sum() for row in response) for response in responses])


@torch.no_grad()
def first_pass(network, responses):
    """The same as numbers, as a learner takes them row by row."""
    logprobs = [network(row).tolist() for response in responses for row in response]
    return response_logprobs(responses, logprobs)


def by_tokens(responses, coefficient, micro):
    """The gradient of the plain policy-gradient loss in micro-batches of `micro` rows."""
    flat = [row for response in responses for row in response]
    advantages = as_advantages(responses, coefficient)
    total = torch.zeros_like(gradient(POLICY(flat[0]).sum()))
    for start in range(0, len(flat), micro):
        loss = fp64(0.0).sum()
        for row, advantage in zip(
            flat[start : start + micro], advantages[start : start + micro], strict=True
        ):
            on = fp64(*advantage)[torch.tensor(row.mask)]
            loss = loss - (on * POLICY(row)).sum()
        total += gradient(loss)
    return total


CHOSEN = [tuple(rows(2, 0)), tuple(rows(1, 1)), tuple(rows(1, 1)), tuple(rows(3, 2))]
REJECTED = [tuple(rows(1, 3)), tuple(rows(2, 4)), tuple(rows(1, 5)), tuple(rows(2, 6))]


@pytest.mark.parametrize("micro", [1, 2, 5, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_dpos_gradient_is_that_of_its_tokens_advantages_in_any_micro_batches(micro, smoothing):
    refs = {
        "ref_chosen": first_pass(REFERENCE, CHOSEN),
        "ref_rejected": first_pass(REFERENCE, REJECTED),
    }
    loss = partial(dpo, **refs, label_smoothing=smoothing)
    direct = gradient(loss(exact(POLICY, CHOSEN), exact(POLICY, REJECTED)).sum())
    up, down = coefficients(loss, first_pass(POLICY, CHOSEN), first_pass(POLICY, REJECTED))
    found = by_tokens(CHOSEN + REJECTED, torch.cat([up, down]), micro)
    assert float((found - direct).abs().max()) < 1e-10
    assert float(direct.abs().max()) > 1e-2


@pytest.mark.parametrize("micro", [1, 2, 100])
def test_ktos_gradient_is_that_of_its_tokens_advantages_in_any_micro_batches(micro):
    labels = [Label(response, n % 2 == 0) for n, response in enumerate(CHOSEN + REJECTED)]
    responses = [label.response for label in labels]
    others = mismatched(labels)
    kl = first_pass(POLICY, others) - first_pass(REFERENCE, others)
    desirable = torch.tensor([label.desirable for label in labels])
    ref = first_pass(REFERENCE, responses)

    def loss(lp):
        return kto(lp, ref, desirable, kl, weight_undesirable=1.3)

    direct = gradient(loss(exact(POLICY, responses)).sum())
    (pull,) = coefficients(loss, first_pass(POLICY, responses))
    found = by_tokens(responses, pull, micro)
    assert float((found - direct).abs().max()) < 1e-10
    assert float(direct.abs().max()) > 1e-2


def test_advantages_are_zero_where_nothing_is_trained():
    responses = CHOSEN[:1]
    for row, advantage in zip(responses[0], as_advantages(responses, fp64(2.0)), strict=True):
        assert advantage == [2.0 if on else 0.0 for on in row.mask]


def test_log_probabilities_must_fit_the_rows():
    with pytest.raises(ValueError, match="do not fit"):
        response_logprobs(CHOSEN[:1], [[-1.0]])


def test_what_a_loss_does_not_depend_on_has_no_coefficient():
    one, other = coefficients(lambda a, b: 3 * a, fp64(1.0, 2.0), fp64(5.0))
    assert (one.tolist(), other.tolist()) == ([-3, -3], [0])


def test_the_ordinary_learner_makes_chosen_responses_likelier_than_rejected_ones():
    learner = learner_of(tiny(), micro_tokens=16, rate=3e-3)
    responses = CHOSEN + REJECTED
    flat = [row for response in responses for row in response]

    def logprobs():
        found = learner.logprobs([Trained(row.tokens, row.mask) for row in flat])
        return response_logprobs(responses, found).split(len(CHOSEN))

    ref_chosen, ref_rejected = logprobs()
    loss = partial(dpo, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
    losses = [float(loss(*logprobs()).mean())]
    for _ in range(8):
        pulls = torch.cat(coefficients(loss, *logprobs()))
        learner.update(
            [
                Trained(row.tokens, row.mask, advantage=advantage)
                for row, advantage in zip(flat, as_advantages(responses, pulls), strict=True)
            ],
            pg,
        )
        losses.append(float(loss(*logprobs()).mean()))
    assert losses[0] == pytest.approx(math.log(2), abs=1e-6)  # the policy is its own reference
    assert losses[-1] < 0.5 * losses[0]
