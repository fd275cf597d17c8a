"""An inverse dynamics model names the action between two states."""

import pytest
import torch

from palaestra.learning.compute.logprobs import token_logprobs
from palaestra.learning.critics.encoder import hidden_at
from palaestra.learning.critics.inverse_dynamics import InverseDynamics, Labelled
from tests.learning.made import tiny

LEFT, RIGHT = (10, 0), (11, 12, 0)  # of different lengths
CORRIDOR = [
    Labelled((1, 2 + place, 2 + place + move, 1), RIGHT if move > 0 else LEFT)
    for place in range(5)
    for move in (-1, 1)
]


def model(seed: int = 0, batch: int = 6) -> InverseDynamics:
    return InverseDynamics(tiny(), seed=seed, learning_rate=3e-3, batch=batch)


def test_it_learns_what_lies_between_two_states() -> None:
    made = model()
    losses = [made.learn(CORRIDOR) for _ in range(60)]
    assert losses[-1] < 0.2 < losses[0]
    names = made.name([one.states for one in CORRIDOR], [LEFT, RIGHT])
    assert names == [int(one.action == RIGHT) for one in CORRIDOR]


def test_names_are_the_likeliest_whole_replies() -> None:
    made = model()
    actions = [LEFT, RIGHT, (13, 0), LEFT]
    with torch.no_grad():
        for one in CORRIDOR[:3]:
            scores = []
            for action in actions:
                whole = [*one.states, *action]
                before = range(len(one.states) - 1, len(whole) - 1)
                hidden = hidden_at(made.network, [whole], [before])
                lp, _ = token_logprobs(
                    made.network, hidden, torch.tensor(action), 1.0, entropy_gradient=False
                )
                scores.append(float(lp.sum()))
            (named,) = made.name([one.states], actions)
            assert scores[named] == pytest.approx(max(scores[:3]), abs=1e-5) and named < 3


def test_the_loss_is_per_token_and_updates_depend_on_the_seed_alone() -> None:
    whole = model(batch=len(CORRIDOR))
    first = whole.learn(CORRIDOR)
    assert first == pytest.approx(model(batch=len(CORRIDOR)).learn(CORRIDOR[::-1]), abs=1e-5)
    assert whole.processed == sum(len(one.states) + len(one.action) for one in CORRIDOR)

    def losses(seed: int) -> list[float]:
        made = model(seed)
        return [made.learn(CORRIDOR) for _ in range(3)]

    assert losses(1) == losses(1) != losses(2)
