"""A student learns its teacher's distributions: against a dense reference, whatever the passes."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.compute.packing import Trained
from palaestra.learning.data.examples.distillation import Taught
from palaestra.learning.data.rows import Row
from palaestra.learning.loop.knowledge_distillation import DistillationPlan, distil
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.kl import Divergence, distillation
from palaestra.models.local.network import DecoderNetwork
from tests.learning.dense import Dense
from tests.learning.made import gradients, grouped, learner_of, same

TEMPERATURE = 0.7
REPLIES = [  # (the student's prompt, the teacher's, the reply)
    ([1, 3, 4, 5], [1, 3, 4, 9, 9, 9], [8, 9, 0]),
    ([1, 3, 4, 5, 6], [1, 3, 4, 5, 6], [10, 0]),  # as the first one begins
    ([2, 7], [2, 7, 11, 12], [5, 5, 6, 0]),
]


def row(prompt: list[int], reply: list[int]) -> Trained:
    return Trained([*prompt, *reply], [False] * len(prompt) + [True] * len(reply))


def rows() -> list[Trained]:
    return [replace(row(own, reply), teacher=row(theirs, reply)) for own, theirs, reply in REPLIES]


def weights(network: DecoderNetwork) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def taught_by(teacher: DecoderNetwork | None, micro_tokens: int = 64) -> Learner:
    """A learner in fp64; without a teacher, the student as it begins is the teacher."""
    network = grouped().double()
    learner = learner_of(
        network, micro_tokens=micro_tokens, temperature=TEMPERATURE, reference="start"
    )
    if teacher is not None:
        learner.take_reference(weights(teacher))
    return learner


def scores(dense: Dense, context: list[int], completion: list[int]) -> Tensor:
    """Of each token of a reply: log-probabilities of the whole vocabulary."""
    states = dense.states([*context, *completion[:-1]])[len(context) - 1 :]
    return (states @ dense.weights["embedding.weight"].T / TEMPERATURE).log_softmax(1)


def reference(teacher: DecoderNetwork, direction: Divergence) -> dict[str, Tensor]:
    """The gradient of the summed divergence, from one dense pass per reply."""
    student, teaching = Dense(grouped().double()), Dense(teacher)
    total = torch.zeros((), dtype=torch.float64)
    for own, theirs, reply in REPLIES:
        s, t = scores(student, own, reply), scores(teaching, theirs, reply).detach()
        if direction is Divergence.REVERSE:
            s, t = t, s
        total = total + (t.exp() * (t - s)).sum()
    total.backward()
    found = {name: p.grad for name, p in student.weights.items()}
    return {name: grad for name, grad in found.items() if grad is not None}


@pytest.mark.parametrize("direction", Divergence)
@pytest.mark.parametrize("micro_tokens", [1, 12, 64])
def test_the_gradient_is_that_of_a_dense_reference(
    direction: Divergence, micro_tokens: int
) -> None:
    teacher = grouped(seed=1).double()
    learner = taught_by(teacher, micro_tokens)
    found = gradients(learner, rows(), distillation, divergence=direction)
    assert same(found, reference(teacher, direction), 1e-10)


@pytest.mark.parametrize("recompute", [False, True])
def test_student_and_teacher_keep_their_weights_apart(recompute: bool) -> None:
    teacher = grouped(seed=1).double()
    learner = taught_by(teacher)
    if recompute:
        learner.budget.memory = learner.budget.needs.of(64, recompute=True)
    before = weights(learner.model.network)
    learner.update(rows(), distillation, learning_rate=1e-3, divergence=Divergence.FORWARD)
    kept = learner.state()["reference"]
    assert all(torch.equal(kept[name], tensor) for name, tensor in weights(teacher).items())
    moved = weights(learner.model.network)
    assert all(
        float((moved[name] - tensor).abs().max()) <= 1.1e-3 for name, tensor in before.items()
    )


def test_the_version_that_learning_begins_with_teaches_nothing_but_its_hints() -> None:
    learner = taught_by(None)
    plain = [replace(one, teacher=None) for one in rows()]
    step = learner.update(plain, distillation, divergence=Divergence.FORWARD)
    assert step.loss == pytest.approx(0, abs=1e-12)
    learner = taught_by(None)
    assert learner.update(rows(), distillation, divergence=Divergence.FORWARD).loss > 0.01


@pytest.mark.slow
def test_a_student_comes_to_do_what_its_teacher_does() -> None:
    teacher, lessons = grouped(seed=1).double(), []
    for own, theirs, reply in REPLIES:
        pair = (
            Row(Key("rl/1", 0), one.tokens, one.mask, [0.0] * len(one.mask), [0] * len(one.mask))
            for one in (row(own, reply), row(theirs, reply))
        )
        lessons.append(Taught(*pair))
    for direction in Divergence:
        learner = taught_by(copy.deepcopy(teacher))
        plan = DistillationPlan(60, 2, 3e-3, direction)
        steps = list(distil(learner, lessons, plan, seed=1))
        assert [step for step, _, _ in steps] == list(range(1, 121))
        assert steps[-1][2].loss < 0.1 * steps[0][2].loss


def test_without_a_teacher_nothing_can_be_distilled() -> None:
    learner = learner_of(grouped())
    with pytest.raises(InputError, match="no reference policy"):
        learner.update(rows(), distillation, divergence=Divergence.FORWARD)
    with pytest.raises(InputError, match="no reference policy"):
        learner.take_reference({})


def test_a_teacher_reads_the_same_tokens_after_other_prompts() -> None:
    with pytest.raises(InputError, match="change prompts only"):
        replace(row([1, 2], [3, 4]), teacher=row([1, 2, 5], [3, 5]))
