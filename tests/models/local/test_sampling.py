"""Token sampling: exactly the softmax, by one uniform number per token."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from palaestra.models.local import sampling
from palaestra.models.local.sampling import STRETCH, sample, uniform


def logits_of(rows: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["compiled", "tensor operations"], autouse=True)
def path(request, monkeypatch):
    """Run a test with the compiled function and with tensor operations."""
    if request.param == "tensor operations":
        monkeypatch.setattr(sampling, "kernels_for", lambda logits: None)


def sampled(logits, temperature=1.0, uniforms=None):
    rows = len(logits)
    given_uniforms = torch.rand(rows) if uniforms is None else torch.as_tensor(uniforms)
    return sample(logits.clone(), torch.full((rows,), temperature), given_uniforms)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(1, 3 * STRETCH), st.floats(0, 1, width=32), st.integers(0, 9), st.floats(0.25, 4)
)
def test_the_token_is_the_inverse_of_the_distribution_at_the_number(
    vocabulary, number, seed, temperature
):
    logits = logits_of(1, vocabulary, seed)
    (token,), (lp,), (entropy,) = sampled(logits, temperature, [number])
    wanted = torch.log_softmax(logits[0].double() / temperature, dim=0)
    total = wanted.exp().cumsum(0)
    below = float(total[token - 1]) if token else 0.0
    assert below - 1e-5 <= number <= float(total[token]) + 1e-5
    assert float(lp) == pytest.approx(float(wanted[token]), abs=1e-4)
    assert float(entropy) == pytest.approx(-float(wanted.exp() @ wanted), abs=1e-4)


def test_frequencies_are_those_of_the_softmax_across_stretches():
    vocabulary, n = 2 * STRETCH + 7, 10_000
    logits = 2 * logits_of(1, vocabulary)
    numbers = (torch.arange(n) + 0.5)[torch.randperm(n)] / n
    tokens, _, _ = sampled(logits.expand(n, -1), uniforms=numbers)
    expected = n * torch.softmax(logits[0].double(), dim=0)
    often = expected > 5
    counts = torch.bincount(tokens, minlength=vocabulary)
    statistic = float(((counts - expected) ** 2 / expected)[often].sum())
    assert statistic < chi2.ppf(0.999, int(often.sum()) - 1)


def test_a_token_without_mass_is_never_sampled():
    logits = torch.full((4, 600), -torch.inf)
    logits[:, 300] = logits[:, 301] = 0.0
    tokens, lp, entropies = sampled(logits, uniforms=[0.0, 0.49, 0.51, 1.0])
    assert tokens.tolist() == [300, 300, 301, 301]
    assert lp.tolist() == pytest.approx([-0.6931472] * 4)
    assert entropies.tolist() == pytest.approx([0.6931472] * 4)


def test_greedy_rows_take_the_first_choice_beside_sampled_ones():
    logits = logits_of(3, 700)
    tokens, lp, entropies = sample(
        logits.clone(), torch.tensor([0.0, 1.0, 0.0]), torch.full((3,), 0.999)
    )
    assert tokens[[0, 2]].tolist() == logits.argmax(dim=1)[[0, 2]].tolist()
    wanted = torch.log_softmax(logits, dim=1).gather(1, tokens.unsqueeze(1)).squeeze(1)
    assert lp.tolist() == pytest.approx(wanted.tolist(), abs=1e-5)
    wide = torch.log_softmax(logits, dim=1)
    assert entropies.tolist() == pytest.approx((-wide.exp() * wide).sum(dim=1).tolist(), abs=1e-5)


def test_numbers_depend_on_seed_and_position():
    found = {uniform(seed, position) for seed in range(50) for position in range(50)}
    assert len(found) == 2500
    assert all(0 <= number < 1 for number in found)
    assert uniform(3, 4) == uniform(3, 4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_whose_weights_have_diverged_samples_nothing(temperature):
    logits = logits_of(2, 300)
    logits[1, 7] = torch.nan
    with pytest.raises(FloatingPointError, match="diverged"):
        sampled(logits, temperature, [0.2, 0.9])
