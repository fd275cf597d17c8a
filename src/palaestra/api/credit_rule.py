"""Your own credit rules, as plain functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, overload

from torch import Tensor

from palaestra.api.own_parts import register
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind

Rule = Callable[..., list[Tensor] | Credit]
"""(Sequence[Trajectory], *, options) -> one advantage per sampled token of each, or `Credit`."""


@overload
def credit_rule(function: Rule, /) -> Callable[..., Credit]: ...


@overload
def credit_rule(
    *, source: str = ..., needs: Collection[str] = ...
) -> Callable[[Rule], Callable[..., Credit]]: ...


def credit_rule(
    function: Rule | None = None, /, *, source: str = "", needs: Collection[str] = ()
) -> Callable[..., Credit] | Callable[[Rule], Callable[..., Credit]]:
    """Register a function as a credit rule that recipes can name: `rl={"credit": "mine"}`.

    The function takes a batch of trajectories and returns, for each, one advantage per sampled
    token; its keyword arguments are options of the rule.

    Args:
        function: the rule, if the decorator is used without arguments.
        source: where its definition comes from; by default its module.
        needs: what it reads beyond tokens and returns, such as "groups" or "values".

    Raises:
        InputError: another rule has that name, or a need is unknown.
    """
    if function is None:
        return lambda rule: _registered(rule, source, needs)
    return _registered(function, source, needs)


def _registered(rule: Rule, source: str, needs: Collection[str]) -> Callable[..., Credit]:
    @functools.wraps(rule)
    def credited(batch: Sequence[Trajectory], **options: Any) -> Credit:
        found = rule(batch, **options)
        return Credit(found) if isinstance(found, list) else found

    return register(Kind.CREDIT, "credit rule", rule, source, needs, called=credited)
