"""Imitation: the expert's replies become likelier."""

import pytest

from palaestra.core.outcome import Outcome
from palaestra.learning.compute.packing import Trained
from palaestra.learning.data.examples.cloning import filtered_cloning
from palaestra.learning.data.examples.example import Example
from palaestra.learning.loop.imitation import ImitationPlan, batches_of
from palaestra.learning.loop.imitation import imitate as imitate_batches
from tests.learning.made import call, episode, learner_of, tiny


def demonstrations(count=8, outcome=None):
    """The expert answers 10 + n to the question n, in two turns."""
    return [
        episode(
            [
                call(0, None, [1, 3 + n % 4], [10 + n % 4, 0], policy="expert", logprobs=[]),
                call(1, 0, [1, 4 + n % 3], [11 + n % 3, 0], policy="expert", logprobs=[]),
            ],
            member=n,
            outcome=outcome,
        )
        for n in range(count)
    ]


def examples(episodes):
    return filtered_cloning(episodes, "expert")


def imitate(learner, chosen, plan, seed):
    return imitate_batches(learner, batches_of(chosen, plan, seed), plan)


def test_imitation_lowers_the_loss_towards_the_experts_words():
    learner = learner_of(tiny())
    plan = ImitationPlan(epochs=15, batch=4, learning_rate=1e-2)
    found = list(imitate(learner, examples(demonstrations()), plan, seed=0))
    losses = [update.loss for _, _, update in found]
    assert [(step, steps) for step, steps, _ in found] == [(i + 1, 30) for i in range(30)]
    assert losses[-1] < 0.1 * losses[0]
    answer = Trained([1, 3, 10], [False, False, True], [0.0] * 3, [0.0] * 3, [0.0] * 3)
    assert learner.logprobs([answer])[0][0] > -0.3


def test_the_loss_is_the_mean_over_the_experts_tokens():
    learner = learner_of(tiny())
    one = demonstrations(1)
    answer = Trained(
        [1, 3, 10, 0, 1, 4, 11, 0], [False, False, True, True] * 2, [0.0] * 8, [0.0] * 8, [0.0] * 8
    )
    (lp,) = learner.logprobs([answer])
    plan = ImitationPlan(epochs=1, batch=4, learning_rate=1e-3)
    ((_, _, update),) = imitate(learner, examples(one), plan, seed=0)
    assert update.loss == pytest.approx(-sum(lp) / 4, abs=1e-5)
    assert update.tokens == 4


def test_only_solved_demonstrations_are_studied():
    learner = learner_of(tiny())
    plan = ImitationPlan(epochs=2, batch=4, learning_rate=1e-3)
    failed = demonstrations(4, Outcome.failure())
    assert list(imitate(learner, examples(failed), plan, seed=0)) == []
    assert len(list(imitate(learner, examples(failed + demonstrations(3)), plan, seed=0))) == 2


def test_an_example_counts_as_much_as_its_weight():
    learner = learner_of(tiny())
    heavy = [Example(e.row, 3.0) for e in examples(demonstrations(1))]
    plan = ImitationPlan(epochs=1, batch=1, learning_rate=1e-3)
    ((_, _, plain),) = imitate(learner_of(tiny()), examples(demonstrations(1)), plan, seed=0)
    ((_, _, update),) = imitate(learner, heavy, plan, seed=0)
    assert update.loss == pytest.approx(3 * plain.loss)


def test_equal_seeds_study_in_equal_order():
    plan = ImitationPlan(epochs=2, batch=3, learning_rate=1e-3)
    runs = [
        [u for _, _, u in imitate(learner_of(tiny()), examples(demonstrations()), plan, seed)]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
