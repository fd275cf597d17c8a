"""Checks of a rule's results: rules may be any function, so their results are checked each update.

A loss of the wrong shape would be broadcast, and credit that is not a number would count as
none: training would continue silently. Each error names the rule and what it should return.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind


def check_trajectories(batch: Sequence[Trajectory]) -> None:
    """Raise InputError where a number of a rollout, its rewards included, is not finite."""
    for trajectory in batch:
        for name, value in _numbers(trajectory):
            if not math.isfinite(value):
                raise InputError(
                    f"{_where(trajectory)}: {name} is {value}, and nothing can be learned from "
                    "that; fix the environment or the record, or leave the rollout out."
                )


def check_credit(rule: str, credit: object, batch: Sequence[Trajectory]) -> Credit:
    """Return a credit rule's result for a batch, checked.

    Args:
        rule: its name.
        credit: the rule's result.
        batch: the rule's input.

    Raises:
        InputError: it is not a `Credit` with one finite advantage per sampled token; targets of the
            critic may also be NaN.
    """
    if not isinstance(credit, Credit):
        raise InputError(
            f"The credit rule '{rule}' returned a {type(credit).__name__}; return a "
            "`Credit`, whose advantages are one tensor per rollout."
        )
    _check_tensors(rule, "advantages", credit.advantages, batch)
    if credit.returns is not None:
        _check_tensors(rule, "returns", credit.returns, batch)
    return credit


def check_tokens(kind: Kind, rule: str, values: object, like: Tensor) -> Tensor:
    """Return a loss's or a correction's result, checked: one number per token, shaped as `like`.

    Raises:
        InputError: it is something else.
    """
    expected = f"return one number per token, a tensor of shape [{len(like)}] here"
    if not isinstance(values, Tensor):
        raise InputError(f"The {kind} '{rule}' returned a {type(values).__name__}; {expected}.")
    if values.shape != like.shape:
        raise InputError(
            f"The {kind} '{rule}' returned the shape {list(values.shape)}; {expected}."
        )
    return values


def check_finite(kind: Kind, rule: str, values: Tensor) -> None:
    """Raise InputError where a number is not finite."""
    good = torch.isfinite(values)
    if not bool(good.all()):
        bad = float(values[~good][0])
        raise InputError(
            f"The {kind} '{rule}' gave {bad} for {int((~good).sum())} of {len(values)} tokens; "
            "return finite numbers."
        )


def check_gradient(loss: str, total: Tensor) -> None:
    """Raise InputError if a loss has no gradient."""
    if not total.requires_grad:
        raise InputError(
            f"The loss '{loss}' has no gradient; compute it from `tokens.lp`, without detaching it."
        )


def check_verdicts(rule: str, verdicts: Sequence[bool], groups: int) -> None:
    """Raise InputError unless a filter gave one verdict for each group."""
    if len(verdicts) != groups:
        raise InputError(
            f"The filter '{rule}' gave {len(verdicts)} verdicts for {groups} groups; return one "
            "per group, true where it is kept."
        )


def _check_tensors(rule: str, name: str, found: object, batch: Sequence[Trajectory]) -> None:
    expected = "return one tensor per rollout, with one number per sampled token"
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
                f"{where} of {_where(trajectory)}; return finite numbers."
            )


def _numbers(trajectory: Trajectory) -> Iterator[tuple[str, float]]:
    """Yield every number of a rollout that a rule may read; per token, a sum represents all."""
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
            (f"the advantage of turn {k}", turn.advantage),
        ]
    yield from ((name, value) for name, value in optional if value is not None)


def _where(trajectory: Trajectory) -> str:
    return f"{trajectory.key} ({trajectory.task})" if trajectory.task else str(trajectory.key)
