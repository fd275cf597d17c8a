"""Entropy terms: the published numbers, and what the released penalty fails to do."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import RecipeError
from palaestra.learning.losses.entropy import (
    EntropyHistory,
    Smoother,
    entropy_bonus,
    epo,
    outside,
    phase_weight,
    squared_excess,
)

ENTROPIES = [0.1, 0.5, 1.2]
STEP = torch.zeros(3, dtype=torch.int64)
WEIGHT = torch.full((3,), 1 / 3, dtype=torch.float64)
HALF = EntropyHistory({0: 1.0}, {0: 2})  # mean 0.5 at step 0


def entropies(values=ENTROPIES):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def gradient(term, entropy):
    (found,) = torch.autograd.grad(term, entropy, allow_unused=True)
    return torch.zeros_like(entropy) if found is None else found


def test_the_released_penalty_gives_the_published_numbers():
    penalty = outside(entropies(), torch.tensor(0.5, dtype=torch.float64))
    assert penalty.tolist() == pytest.approx([0.1, 0, 0.1])
    assert float((WEIGHT * penalty).sum()) == pytest.approx(0.0667, abs=5e-5)
    assert float((WEIGHT * entropies().detach()).sum()) == pytest.approx(0.6)


def test_the_released_term_gives_the_published_loss():
    term = epo(entropies(), STEP, WEIGHT, history=HALF, epoch=0, smoother=Smoother.INDICATOR)
    assert term.item() == pytest.approx(-0.000533, abs=5e-7)


def test_the_released_penalty_has_no_gradient_so_only_the_bonus_acts():
    entropy = entropies()
    released = epo(entropy, STEP, WEIGHT, history=HALF, epoch=0, smoother=Smoother.INDICATOR)
    plain = entropy_bonus(entropy, STEP, WEIGHT)
    assert released.item() != pytest.approx(plain.item())
    assert torch.equal(gradient(released, entropy), gradient(plain, entropy))


def test_the_edge_of_the_band_counts_as_outside_in_the_released_form():
    reference = torch.tensor(1.0)
    assert outside(torch.tensor([0.5, 1.0, 2.0]), reference, low=0.5, high=2.0).tolist() == (
        pytest.approx([0.1, 0, 0.1])
    )


def test_the_squared_penalty_is_the_squared_distance_to_the_band():
    entropy = entropies()
    penalty = squared_excess(entropy, torch.full((3,), 0.5, dtype=torch.float64))
    assert penalty.tolist() == pytest.approx([0.09, 0, 0.36])
    assert gradient(penalty.sum(), entropy).tolist() == pytest.approx([-0.6, 0, 1.2])


def test_the_squared_penalty_pushes_entropy_back_into_its_band():
    entropy = entropies()
    term = epo(entropy, STEP, WEIGHT, history=HALF, epoch=0, bonus=1.0, smoothing=10.0)
    low, inside, high = gradient(term, entropy).tolist()
    assert low < inside < 0 < high  # descent raises the first two and lowers the third


@pytest.mark.parametrize("smoother", Smoother)
def test_steps_without_a_past_are_not_penalised(smoother):
    entropy, step = entropies(), torch.tensor([0, 7, 7])
    term = epo(entropy, step, WEIGHT, history=EntropyHistory(), epoch=0, smoother=smoother)
    plain = entropy_bonus(entropy, step, WEIGHT)
    assert term.item() == pytest.approx(plain.item())
    assert torch.equal(gradient(term, entropy), gradient(plain, entropy))


def test_the_penalty_compares_each_token_with_the_past_of_its_own_step():
    history = EntropyHistory({0: 0.1, 3: 2.4}, {0: 1, 3: 2})
    entropy, step = entropies([0.1, 1.2, 0.1]), torch.tensor([0, 3, 3])
    reference = history.reference(step)
    assert reference.tolist() == pytest.approx([0.1, 1.2, 1.2])
    assert squared_excess(entropy, reference).tolist() == pytest.approx([0, 0, 0.86**2])


def test_the_plain_bonus_is_the_weighted_mean_entropy():
    entropy = entropies()
    bonus = entropy_bonus(entropy, STEP, WEIGHT)
    assert bonus.item() == pytest.approx(-0.001 * 0.6)
    assert gradient(bonus, entropy).tolist() == pytest.approx([-0.001 / 3] * 3)


@given(st.lists(st.floats(0, 5), min_size=2, max_size=12), st.data())
def test_splitting_a_batch_into_micro_batches_changes_no_gradient(values, data):
    n = len(values)
    step = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    weight = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    history = EntropyHistory({0: 1.0, 1: 3.0}, {0: 2, 1: 2})
    cut = data.draw(st.integers(1, n - 1))
    entropy = entropies(values)

    def term(part):
        return epo(entropy[part], step[part], weight[part], history=history, epoch=20)

    whole = gradient(term(slice(None)), entropy)
    parts = gradient(term(slice(None, cut)) + term(slice(cut, None)), entropy)
    assert torch.allclose(whole, parts, atol=1e-12)


def test_a_token_without_weight_adds_nothing():
    masked = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    entropy = entropies()
    term = epo(entropy, STEP, masked, history=HALF, epoch=0)
    assert gradient(term, entropy)[1] == 0
    other = entropies([0.1, 99.0, 1.2])
    assert epo(other, STEP, masked, history=HALF, epoch=0).item() == pytest.approx(term.item())


@pytest.mark.parametrize(
    ("epoch", "weight"),
    [(0, 1), (37, 0.8746), (75, 0.8271), (76, 0.7686), (112, 0.1821), (150, 0.0398)],
)
def test_the_phase_weight_gives_the_published_numbers(epoch, weight):
    assert phase_weight(epoch, 150) == pytest.approx(weight, abs=5e-5)


@given(st.floats(0, 300), st.floats(0, 300))
def test_the_phase_weight_only_falls(a, b):
    early, late = sorted((a, b))
    assert 1 >= phase_weight(early) >= phase_weight(late) >= 0


@pytest.mark.parametrize(("epoch", "epochs"), [(-1, 150), (0, 0)])
def test_the_phase_weight_needs_epochs(epoch, epochs):
    with pytest.raises(RecipeError, match="epoch"):
        phase_weight(epoch, epochs)


def test_a_band_that_does_not_hold_the_past_itself_is_an_error():
    with pytest.raises(RecipeError, match="band"):
        epo(entropies(), STEP, WEIGHT, history=HALF, epoch=0, low=1.1)


def test_the_history_averages_over_iterations_each_step_for_itself():
    weight = torch.tensor([1.0, 1.0, 2.0])
    history = EntropyHistory()
    history = history.updated(torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0, 0, 1]), weight)
    history = history.updated(torch.tensor([0.5, 9.0]), torch.tensor([0, 2]), torch.tensor([1, 0]))
    assert history.mean(0) == pytest.approx((1.5 + 0.5) / 2)
    assert history.mean(1) == pytest.approx(0.5)
    assert math.isnan(history.mean(2))  # its only token had no weight


def test_updating_the_history_leaves_the_old_one_as_it_was():
    HALF.updated(torch.tensor([9.0]), torch.tensor([0]), torch.tensor([1.0]))
    assert HALF.mean(0) == 0.5
