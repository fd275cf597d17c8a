"""Guided sampling: each token is of the changed distribution, however conversations are read."""

from __future__ import annotations

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.core.model import Sampling
from palaestra.learning.critics.encoder import last_states
from palaestra.learning.critics.ilql import TokenCritic, steered_logits
from palaestra.models.local.engine import Engine
from palaestra.models.local.guidance import Guide
from palaestra.models.local.request import Request
from tests.learning.made import finish, grouped
from tests.models.plain import distributions

POLICY, CRITIC = grouped(), TokenCritic(grouped(seed=3), seed=0)
BETA = 16.0
PROMPTS = [[5], [7, 8, 9], list(range(3, 23)), [*range(3, 23), 5, 6], [*range(3, 20), 9]]
FEW = 2**15  # bytes: two conversations at once


def steered(logits: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    q, v = CRITIC(CRITIC.network.normed(hidden))
    return steered_logits(logits.log_softmax(dim=1), q, v, beta=BETA)


def replies(*, guided: bool, memory: int = 2**24, step_tokens: int = 2048) -> list[Request]:
    engine = Engine(
        POLICY, frozenset(), slots=8, context=128, block=4, memory=2**24, step_tokens=step_tokens
    )
    if guided:
        engine.guide = Guide(CRITIC.network, steered, memory=memory, context=64, slots=8)
    asked = [engine.submit(prompt, Sampling(1.0, 8), seed) for seed, prompt in enumerate(PROMPTS)]
    return finish(engine, asked)


def expected(request: Request) -> list[float]:
    """Return the steered log-probabilities of a reply, from whole passes over its tokens."""
    whole = [*request.tokens, *request.completion]
    before = [whole[:place] for place in range(len(request.tokens), len(whole))]
    q, v = CRITIC(last_states(CRITIC.network, before))
    own = distributions(POLICY, request.tokens, request.completion)
    changed = steered_logits(own, q, v, beta=BETA).log_softmax(dim=1)
    return [float(row[token]) for row, token in zip(changed, request.completion, strict=True)]


@pytest.mark.parametrize(
    "read", [{}, {"memory": FEW}, {"step_tokens": 8}], ids=["at once", "in turns", "in parts"]
)
def test_replies_are_of_the_steered_distribution(read: dict[str, int]) -> None:
    with torch.no_grad():
        for request in replies(guided=True, **read):
            assert request.logprobs == pytest.approx(expected(request), abs=1e-4)


def test_steering_changes_what_is_sampled() -> None:
    alone, led = replies(guided=False), replies(guided=True)
    assert [r.completion for r in alone] != [r.completion for r in led]


def test_a_model_with_a_cache_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = grouped()
    monkeypatch.setattr(network, "own_cache", True)
    with pytest.raises(InputError, match="this model keeps its own; leave out steer"):
        Guide(network, steered, memory=FEW, context=64, slots=8)
