"""Environments of palaestra for programs that expect PettingZoo's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from palaestra.api.naming import named
from palaestra.core.environment import Environment
from palaestra.core.errors import MissingPackage

if TYPE_CHECKING:
    from palaestra.api.pettingzoo_environments import TextAEC, TextParallel


@overload
def to_pettingzoo(id: str | type[Environment], *, parallel: Literal[False] = False) -> TextAEC: ...


@overload
def to_pettingzoo(id: str | type[Environment], *, parallel: Literal[True]) -> TextParallel: ...


def to_pettingzoo(id: str | type[Environment], *, parallel: bool = False) -> TextAEC | TextParallel:
    """Return the environment of that id as one of PettingZoo's, with actions in words.

    An observation is `{"text": …}`, an action any text; an action space samples valid moves. An
    action that is not understood is answered in words and leaves the turn where it is, with
    `info["valid"]` false. `reset(seed=N)` starts training task number N, and
    `options={"split": "test"}` a held-out one.

    Args:
        id: of an environment with one or several players, or its class.
        parallel: return a `ParallelEnv` in place of an `AECEnv`. A step takes an action of each
            player; those of players who do not act now are ignored (`info["acts"]`).

    Raises:
        MissingPackage: PettingZoo is not installed.
        InputError: there is no such environment, or it shows images.
    """
    try:
        from palaestra.api.pettingzoo_environments import TextAEC, TextParallel
    except ImportError as error:
        raise MissingPackage(
            "PettingZoo's interface needs the package 'pettingzoo', which is not installed; "
            "install it with: pip install 'palaestra[pettingzoo]'."
        ) from error
    return (TextParallel if parallel else TextAEC)(named(id))
