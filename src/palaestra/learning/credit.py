"""Credit: how much better than expected each rollout of a group was.

Pure functions of one group's returns: all rollouts of the same task from the same
initial state. Equal returns give zero advantage. Definitions were read in public
releases (verl, TRL, ml-loop), not copied from them.
"""

from __future__ import annotations

from torch import Tensor

from palaestra.core.errors import GroupTooSmall


def leave_one_out(returns: Tensor) -> Tensor:
    """Advantage of each rollout over the mean of the others.

    Source: Kool et al. 2019; Ahmadian et al. 2024 (RLOO); Chen et al. 2025 (LOOP).

    Args:
        returns: episode returns of one group, shape [G], any unit of reward.

    Returns:
        advantages, shape [G]; they sum to zero.

    Raises:
        GroupTooSmall: G < 2, where "the others" do not exist.
    """
    _check(returns, "leave-one-out")
    g = returns.shape[0]
    return (returns - returns.mean()) * (g / (g - 1))


def group_normalised(returns: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """Advantage in standard deviations from the group's mean.

    Source: Shao et al. 2024 (GRPO). verl uses ddof 1 and eps 1e-6, TRL ddof 1 and
    eps 1e-4.

    Args:
        returns: shape [G].
        ddof: 1 divides the variance by G - 1, 0 by G.
        eps: added to the standard deviation, in units of reward.

    Returns:
        advantages, shape [G]; zeros where all returns are equal.

    Raises:
        GroupTooSmall: G < 2.
    """
    _check(returns, "group normalisation")
    centred = returns - returns.mean()
    return centred / (returns.std(correction=ddof) + eps)


def _check(returns: Tensor, what: str) -> None:
    if returns.shape[0] < 2:
        raise GroupTooSmall(
            f"{what} needs groups of at least 2 rollouts of the same task, but got "
            f"{returns.shape[0]}; set rl.group to 2 or more."
        )
