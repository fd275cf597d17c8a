"""Hand-made and random tokens, in fp64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from palaestra.learning.losses.trained_tokens import Tokens

PER_TOKEN = ("lp", "lp_old", "advantage", "turn", "rollout", "lp_beh", "version", "lp_ref")


def fp64(values: Sequence[float] | Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def tokens(
    lp: Sequence[float] | Tensor,
    lp_old: Sequence[float] | Tensor,
    advantage: Sequence[float] | Tensor | float = 1.0,
    *,
    lp_beh: Sequence[float] | Tensor | None = None,
    lp_ref: Sequence[float] | Tensor | None = None,
    turn: Sequence[int] | None = None,
    rollout: Sequence[int] | None = None,
    version: Sequence[int] | None = None,
    current: int = 0,
    proximal: int = 0,
) -> Tokens:
    """One rollout of one turn by default; the sampler's are the old ones."""
    count = len(lp)
    if isinstance(advantage, float | int):
        advantage = [advantage] * count
    return Tokens(
        lp=fp64(lp).clone().requires_grad_(),
        lp_old=fp64(lp_old),
        advantage=fp64(advantage),
        turn=torch.tensor(turn if turn is not None else [0] * count),
        rollout=torch.tensor(rollout if rollout is not None else [0] * count),
        lp_beh=fp64(lp_old if lp_beh is None else lp_beh),
        version=torch.tensor(version if version is not None else [0] * count),
        lp_ref=None if lp_ref is None else fp64(lp_ref),
        current=current,
        proximal=proximal,
    )


def moved(log_ratios: Sequence[float], advantage: Sequence[float] | float = 1.0, **ids) -> Tokens:
    """Tokens whose log-probabilities rose by so much since the start of the update."""
    start = fp64([-2.0 - 0.1 * i for i in range(len(log_ratios))])
    return tokens(start + fp64(log_ratios), start, advantage, **ids)


def weighed(ratios: Sequence[float], **ids) -> Tokens:
    """Tokens that the start of the update makes so much likelier than their sampler did."""
    start = fp64([-2.0] * len(ratios))
    return tokens(start, start, lp_beh=start - fp64(ratios).log(), **ids)


def taken(batch: Tokens, index: Tensor) -> Tokens:
    """Those tokens alone, in that order."""
    parts = {name: getattr(batch, name) for name in PER_TOKEN}
    found = {name: x.detach()[index] for name, x in parts.items() if x is not None}
    found["lp"].requires_grad_()
    return dataclasses.replace(batch, **found)


def at_rest(batch: Tokens) -> Tokens:
    """The same tokens where all four policies are one."""
    lp = batch.lp.detach()
    return dataclasses.replace(
        batch, lp=lp.clone().requires_grad_(), lp_old=lp, lp_beh=lp, lp_ref=lp
    )


def gradient(
    loss: Callable[[Tokens], Tensor], batch: Tokens, weight: Tensor | None = None
) -> Tensor:
    """Of the (weighted) sum of losses with respect to the log-probabilities."""
    per_token = loss(batch)
    total = per_token.sum() if weight is None else (per_token * weight).sum()
    (found,) = torch.autograd.grad(total, batch.lp)
    return found


@st.composite
def batches(draw) -> Tokens:
    """One to four rollouts of one to three turns of one to four tokens, all shuffled."""
    shape = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4)
    )
    turn, rollout, turns = [], [], 0
    for number, sizes in enumerate(shape):
        for size in sizes:
            turn += [turns] * size
            rollout += [number] * size
            turns += 1
    count = len(turn)
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.01, 0.3, 3.0]))
    lp_old = -3 * torch.rand(count, generator=g, dtype=torch.float64)
    noise = spread * torch.randn(3, count, generator=g, dtype=torch.float64)
    batch = tokens(
        lp_old + noise[0],
        lp_old,
        torch.randn(count, generator=g, dtype=torch.float64),
        lp_beh=lp_old + noise[1],
        lp_ref=lp_old + noise[2],
        turn=turn,
        rollout=rollout,
        version=torch.randint(0, 7, (count,), generator=g).tolist(),
        current=6,
        proximal=5,
    )
    return taken(batch, torch.randperm(count, generator=g))
