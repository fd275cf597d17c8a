"""What rules are held to: theirs may be any function, so what it gives is checked once per update.

A loss of the wrong shape would be broadcast, and credit that is not a number would count as
none: both train on without a word. Each sentence names the rule and what it should have given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.component import Kind
from palaestra.learning.credit.rule import Credit
from palaestra.learning.trajectory import Trajectory


def check_trajectories(batch: Sequence[Trajectory]) -> None:
    """Raises InputError where a number of a rollout, its rewards included, is not finite."""
    for trajectory in batch:
        for name, value in _numbers(trajectory):
            if not math.isfinite(value):
                raise InputError(
                    f"{_where(trajectory)}: {name} is {value}, and nothing can be learned from "
                    "that; mend the environment or the record, or leave the rollout out."
                )


def check_credit(rule: str, credit: object, batch: Sequence[Trajectory]) -> Credit:
    """What a credit rule gave for a batch.

    Args:
        rule: its name.
        credit: what it returned.
        batch: what it was given.

    Raises:
        InputError: it is no `Credit` with one finite advantage per sampled token; targets of the
            critic may also be NaN.
    """
    if not isinstance(credit, Credit):
        raise InputError(
            f"The credit rule '{rule}' returned a {type(credit).__name__}; it must return a "
            "`Credit`, whose advantages are one tensor per rollout."
        )
    _check_tensors(rule, "advantages", credit.advantages, batch)
    if credit.returns is not None:
        _check_tensors(rule, "returns", credit.returns, batch)
    return credit


def check_tokens(kind: Kind, rule: str, values: object, like: Tensor) -> Tensor:
    """What a loss or a correction gave: one number for each of M tokens, the shape of `like`.

    Raises:
        InputError: it is something else.
    """
    expected = f"it must return one number per token, a tensor of shape [{len(like)}] here"
    if not isinstance(values, Tensor):
        raise InputError(f"The {kind} '{rule}' returned a {type(values).__name__}; {expected}.")
    if values.shape != like.shape:
        raise InputError(
            f"The {kind} '{rule}' returned the shape {list(values.shape)}; {expected}."
        )
    return values


def check_finite(kind: Kind, rule: str, values: Tensor) -> None:
    """Raises InputError where a number is not finite."""
    good = torch.isfinite(values)
    if not bool(good.all()):
        bad = float(values[~good][0])
        raise InputError(
            f"The {kind} '{rule}' gave {bad} for {int((~good).sum())} of {len(values)} tokens; it "
            "must give finite numbers."
        )


def check_gradient(loss: str, total: Tensor) -> None:
    """Raises InputError where a loss depends on nothing that could be learned."""
    if not total.requires_grad:
        raise InputError(
            f"The loss '{loss}' has no gradient; it must be made of `tokens.lp`, without detaching "
            "it."
        )


def check_verdicts(rule: str, verdicts: Sequence[bool], groups: int) -> None:
    """Raises InputError unless a filter gave one verdict for each group."""
    if len(verdicts) != groups:
        raise InputError(
            f"The filter '{rule}' gave {len(verdicts)} verdicts for {groups} groups; it must say "
            "of each group whether it is kept."
        )


def _check_tensors(rule: str, name: str, found: object, batch: Sequence[Trajectory]) -> None:
    expected = "it must give one tensor per rollout, with one number per sampled token"
    if not isinstance(found, Sequence) or len(found) != len(batch):
        count = len(found) if isinstance(found, Sequence) else "no list of"
        raise InputError(
            f"The credit rule '{rule}' gave {count} {name} for {len(batch)} rollouts; {expected}."
        )
    for values, trajectory in zip(found, batch, strict=True):
        if not isinstance(values, Tensor) or list(values.shape) != [trajectory.tokens]:
            tensor = isinstance(values, Tensor)
            form = f"of shape {list(values.shape)}" if tensor else f"as a {type(values).__name__}"
            raise InputError(
                f"The credit rule '{rule}' gave {name} {form} for {trajectory.key}, a "
                f"rollout of {len(trajectory.turns)} turns and {trajectory.tokens} sampled tokens; "
                f"{expected}, here [{trajectory.tokens}] (`per_token` makes it of one per turn)."
            )
        # a token without a target has NaN there
        good = ~values.isinf() if name == "returns" else values.isfinite()
        if not bool(good.all()):
            where = int((~good).nonzero()[0])
            raise InputError(
                f"The credit rule '{rule}' gave {float(values[where])} among its {name} for token "
                f"{where} of {_where(trajectory)}; it must give finite numbers."
            )


def _numbers(trajectory: Trajectory) -> Iterator[tuple[str, float]]:
    """Every number of a rollout that a rule may read; per token, a sum stands for all."""
    yield "its outcome", trajectory.outcome
    ends = (trajectory.bootstrap, *trajectory.bootstraps.values())
    yield "the critic's value of its end", sum(ends)
    for player, outcome in trajectory.outcomes.items():
        yield f"the outcome of {player}", outcome
    optional = [
        ("the belief before its first turn", trajectory.belief),
        ("the return of the greedy rollout", trajectory.greedy),
    ]
    for k, turn in enumerate(trajectory.turns):
        yield f"the reward of turn {k}", turn.reward
        yield f"the critic's value in turn {k}", sum(turn.values)
        optional += [
            (f"the progress before turn {k}", turn.progress),
            (f"the belief after turn {k}", turn.belief),
            (f"the contribution of turn {k}", turn.contribution),
        ]
    yield from ((name, value) for name, value in optional if value is not None)


def _where(trajectory: Trajectory) -> str:
    return f"{trajectory.key} ({trajectory.task})" if trajectory.task else str(trajectory.key)
