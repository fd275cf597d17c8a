"""Credit rules of one's own, as plain functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any, overload

from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.component import Kind, Need, Status, component, components
from palaestra.learning.credit.rule import Credit
from palaestra.learning.trajectory import Trajectory

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
    """Register a function as a credit rule, which recipes can name: `rl={"credit": "mine"}`.

    The function takes a batch of trajectories and returns, for each, one advantage per sampled
    token; its keyword arguments are options of the rule.

    Args:
        function: the rule, where the decorator stands alone.
        source: where its definition was read; by default its module.
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

    name = rule.__name__
    other = components(Kind.CREDIT).get(name)
    if other is not None and _place(other.function) != _place(rule):
        raise InputError(
            f"There is a credit rule '{name}' already, from {other.source}; give yours another "
            "name."
        )
    read = component(
        Kind.CREDIT,
        name,
        source=source or rule.__module__,
        status=Status.OURS,
        needs=[_need(need) for need in needs],
    )
    return read(credited)


def _place(rule: Callable[..., Any]) -> tuple[str, str]:
    """Where it was defined: a notebook's cell that is run again gives the same rule anew."""
    return rule.__module__, rule.__qualname__


def _need(name: str) -> Need:
    try:
        return Need(name)
    except ValueError:
        known = ", ".join(sorted(Need))
        raise InputError(f"A credit rule cannot need '{name}'; it can need: {known}.") from None
