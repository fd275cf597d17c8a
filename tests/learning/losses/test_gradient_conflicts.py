"""Conflicting gradients: cosines, and PCGrad by hand, by its definition, and in an update."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palaestra.learning.losses.gradient_conflicts import (
    Families,
    cosines,
    products,
    projection_weights,
    weighted_sum,
)
from palaestra.learning.losses.policy_loss import pg
from tests.learning.made import gradients, grouped, learner_of, same, sampled_rows


def flat(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def projected(vectors: list[Tensor], *, seed: int) -> Tensor:
    """PCGrad's sum of gradients."""
    return weighted_sum(vectors, projection_weights(products(vectors), seed=seed))


@st.composite
def several(draw: st.DrawFn) -> list[Tensor]:
    count, size = draw(st.integers(2, 4)), draw(st.integers(1, 6))
    number = st.integers(-3, 3)  # scalar products are then exact
    rows = st.lists(number, min_size=size, max_size=size)
    return [flat(*draw(rows)) for _ in range(count)]


def by_definition(vectors: list[Tensor], seed: int) -> Tensor:
    """Algorithm 1 of the paper, on whole vectors."""
    rng, total = random.Random(seed), torch.zeros_like(vectors[0])
    for own, vector in enumerate(vectors):
        left = vector.clone()
        others = [other for other in range(len(vectors)) if other != own]
        rng.shuffle(others)
        for other in others:
            dot = left @ vectors[other]
            if dot < -1e-12:
                left = left - dot / (vectors[other] @ vectors[other]) * vectors[other]
        total = total + left
    return total


def test_two_opposed_gradients_by_hand() -> None:
    one, other = flat(1, 0), flat(-1, 1)
    # (1, 0) - (-1/2) (-1, 1) = (1/2, 1/2), and (-1, 1) - (-1/1) (1, 0) = (0, 1)
    assert projected([one, other], seed=0).tolist() == [0.5, 1.5]
    assert cosines(products([one, other]))[0, 1] == pytest.approx(-(0.5**0.5))


def test_a_gradient_of_zero_has_cosine_0_and_changes_nothing() -> None:
    one, zero = flat(1, 2), flat(0, 0)
    assert cosines(products([one, zero]))[0, 1] == 0
    assert projected([one, zero], seed=0).tolist() == [1, 2]


@given(several(), st.integers(0, 5))
def test_projection_is_that_of_the_paper(vectors: list[Tensor], seed: int) -> None:
    assert torch.allclose(projected(vectors, seed=seed), by_definition(vectors, seed), atol=1e-8)


@given(several(), st.integers(0, 5))
def test_without_a_conflict_the_sum_stays_as_it_is(vectors: list[Tensor], seed: int) -> None:
    friendly = [vector.abs() for vector in vectors]
    assert projection_weights(products(friendly), seed=seed).tolist() == [1.0] * len(vectors)
    assert torch.equal(projected(friendly, seed=seed), sum(friendly[1:], friendly[0]))


@given(several())
def test_of_two_gradients_neither_loses_to_first_order(vectors: list[Tensor]) -> None:
    one, other = vectors[:2]
    step = projected([one, other], seed=0)
    assert float(step @ one) >= -1e-9 and float(step @ other) >= -1e-9


@given(several())
def test_cosines_are_symmetric_and_bounded(vectors: list[Tensor]) -> None:
    found = cosines(products(vectors))
    assert torch.equal(found, found.T) and bool((found.abs() <= 1 + 1e-9).all())


def test_gradients_kept_apart_add_up_to_that_of_the_whole_batch() -> None:
    rows = sampled_rows(6)
    families = Families({row.rollout: "ab"[i % 2] for i, row in enumerate(rows)}, False, seed=0)
    whole = gradients(learner_of(grouped()), rows, pg)
    learner = learner_of(grouped())
    assert same(gradients(learner, rows, pg, families=families), whole)
    update = learner_of(grouped()).update(rows, pg, families=families)
    alone = [
        torch.cat([g.flatten() for g in gradients(learner_of(grouped()), rows[at::2], pg).values()])
        for at in (0, 1)
    ]
    expected = torch.nn.functional.cosine_similarity(alone[0], alone[1], dim=0)
    assert update.figures()["gradient_cosine/a and b"] == pytest.approx(float(expected), abs=1e-4)


def test_an_update_takes_the_projected_gradient() -> None:
    rows = sampled_rows(2, seed=3)
    opposed = [rows[0], *(r for r in rows[1:])]
    families = {row.rollout: f"family {i}" for i, row in enumerate(opposed)}
    parts = [gradients(learner_of(grouped()), [row], pg) for row in opposed]
    vectors = [torch.cat([g.flatten() for g in part.values()]) for part in parts]
    if float(vectors[0] @ vectors[1]) > 0:  # turn one round
        opposed[1] = type(rows[1])(
            **{
                **{name: getattr(rows[1], name) for name in ("tokens", "mask", "lp_old", "weight")},
                "advantage": [-a for a in rows[1].advantage],
                "rollout": rows[1].rollout,
            }
        )
        vectors[1] = -vectors[1]
    found = gradients(learner_of(grouped()), opposed, pg, families=Families(families, True, seed=0))
    step = torch.cat([g.flatten() for g in found.values()])
    assert torch.allclose(step, projected(vectors, seed=0), atol=1e-5)
    assert not torch.allclose(step, vectors[0] + vectors[1], atol=1e-5)


def test_one_family_alone_has_no_cosine() -> None:
    rows = sampled_rows(3)
    families = Families(dict.fromkeys((row.rollout for row in rows), "only"), True, seed=0)
    update = learner_of(grouped()).update(rows, pg, families=families)
    assert not update.gradient_cosine
    assert update.gradient_norm > 0
