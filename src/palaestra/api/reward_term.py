"""Your own reward terms, as plain functions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import overload

from palaestra.api.own_parts import register
from palaestra.learning.methods.component import Kind

Measure = Callable[..., float | list[float]]
"""(Episode, *, options) -> one number for the episode, or a list with one per step."""


@overload
def reward_term(function: Measure, /) -> Measure: ...


@overload
def reward_term(
    *, source: str = ..., needs: Collection[str] = ...
) -> Callable[[Measure], Measure]: ...


def reward_term(
    function: Measure | None = None, /, *, source: str = "", needs: Collection[str] = ()
) -> Measure | Callable[[Measure], Measure]:
    """Register a function as a reward term that recipes weight: `rl={"rewards": {"mine": 0.1}}`.

    The function takes the record of a scored episode (`pa.Episode`) and returns one number for how
    it ended, or a list with one number per step (`episode.steps`); its keyword arguments are
    options (`rl={"reward_options": {"mine": {…}}}`). It must depend on nothing else: rewards are
    calculated again when a run is resumed, and by `palaestra compare`.

    Args:
        function: the term, if the decorator is used without arguments.
        source: where its definition comes from; by default its module.
        needs: what it reads that not every environment declares: "progress" or "anchors".

    Raises:
        InputError: another term has that name, or a need is unknown.
    """
    if function is None:
        return lambda measure: register(Kind.REWARD, "reward term", measure, source, needs)
    return register(Kind.REWARD, "reward term", function, source, needs)
