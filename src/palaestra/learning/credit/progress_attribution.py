"""Attribution: a progress model estimates each turn's contribution, instead of the outcome.

Source: SPA-RL (Wang et al. 2025). The contributions of a rollout add up to the model's estimate
of its return, so they replace the outcome, turn by turn, in any rule that reads rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from palaestra.core.errors import InputError
from palaestra.learning.credit.gae import gae
from palaestra.learning.credit.rule import Credit, centred, check_groups, groups
from palaestra.learning.credit.turn_rewards import return_to_go
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import NotNegative, Share


def spa_rewards(trajectory: Trajectory, alpha: float = 1.0, beta: float = 0.5) -> list[float]:
    """Return SPA-RL's rewards: `alpha * contribution + beta * (1 if the turn was valid)`.

    The contributions add up to the progress model's estimate of the return, so that they
    replace the outcome. beta is the release's; alpha is not stated there.

    Raises:
        InputError: a contribution is missing.
    """
    found = []
    for k, turn in enumerate(trajectory.turns):
        if turn.contribution is None:
            raise InputError(
                f"spa needs a progress model's contribution for each turn, but turn {k} of "
                f"{trajectory.key} has none; fill it in, or choose return_to_go."
            )
        found.append(alpha * turn.contribution + beta * turn.valid)
    return found


def spa_attributed(
    batch: Sequence[Trajectory],
    *,
    alpha: float = 1.0,
    beta: float = 0.5,
    overwrite: bool = False,
) -> list[Trajectory]:
    """Return the batch with SPA-RL's rewards instead of its own, for any rule that reads rewards.

    Args:
        batch: rollouts with contributions.
        alpha: weight of the contributions.
        beta: reward of a valid turn.
        overwrite: first replace every contribution of a rollout by the outcome minus the mean
            outcome of the group's others, as the release's WebShop example does.

    Raises:
        GroupTooSmall: `overwrite` in a group of one rollout.
        InputError: a contribution is missing.
    """
    if overwrite:
        batch = _overwritten(batch)
    found = []
    for trajectory in batch:
        rewards = spa_rewards(trajectory, alpha, beta)
        pairs = zip(trajectory.turns, rewards, strict=True)
        turns = tuple(replace(turn, reward=reward) for turn, reward in pairs)
        found.append(replace(trajectory, turns=turns, outcome=0.0))
    return found


@component(
    Kind.CREDIT,
    "spa",
    source="rewards of SPA-RL (Wang et al. 2025); the comparison without a critic is ours",
    status=Status.OURS,
    needs=[Need.GROUP, Need.CONTRIBUTION],
)
def spa(
    batch: Sequence[Trajectory],
    *,
    alpha: NotNegative = 1.0,
    beta: NotNegative = 0.5,
    gamma: Share = 1.0,
    overwrite: bool = False,
) -> Credit:
    """SPA-RL's rewards from a turn on minus the group's mean at the same turn.

    `return_to_go` of `spa_attributed`: no critic, unlike the paper, whose form is `spa_gae`.
    A rollout that had ended before a turn counts as 0 there.

    Args:
        batch: rollouts with contributions.
        alpha: weight of the contributions.
        beta: reward of a valid turn.
        gamma: discount per turn.
        overwrite: as in `spa_attributed`.

    Raises:
        GroupTooSmall: a group of one rollout.
        InputError: a contribution is missing.
    """
    check_groups(batch, "spa")
    attributed = spa_attributed(batch, alpha=alpha, beta=beta, overwrite=overwrite)
    return return_to_go(attributed, gamma=gamma)


@component(
    Kind.CREDIT,
    "spa_gae",
    source="SPA-RL (Wang et al. 2025); prm/ of its release for the rewards",
    status=Status.EXPERIMENTAL,
    needs=[Need.VALUE, Need.CONTRIBUTION],
    when={Need.GROUP: lambda options: bool(options["overwrite"])},
    targets=True,
)
def spa_gae(
    batch: Sequence[Trajectory],
    *,
    alpha: NotNegative = 1.0,
    beta: NotNegative = 0.5,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    overwrite: bool = False,
) -> Credit:
    """SPA-RL's rewards at the turns' ends, and PPO with a critic over tokens.

    `gae` of `spa_attributed`, the paper's form. The release's example first overwrites the
    progress model's contributions (`overwrite`).

    Args:
        batch: rollouts with contributions, and a value before each token.
        alpha: weight of the contributions.
        beta: reward of a valid turn.
        gamma: discount per token.
        lam: 0 trusts the critic, 1 the sampled return.
        overwrite: as in `spa_attributed`.

    Raises:
        GroupTooSmall: `overwrite` in a group of one rollout.
        InputError: a contribution or a value is missing.
    """
    attributed = spa_attributed(batch, alpha=alpha, beta=beta, overwrite=overwrite)
    return gae(attributed, gamma=gamma, lam=lam)


def _overwritten(batch: Sequence[Trajectory]) -> list[Trajectory]:
    """Replace every contribution by the outcome minus the mean outcome of the group's others."""
    check_groups(batch, "spa with overwrite")
    found = list(batch)
    for members in groups([trajectory.group for trajectory in batch]):
        outcomes = torch.tensor([batch[i].outcome for i in members], dtype=torch.float64)
        left = centred(outcomes) * (len(members) / (len(members) - 1))
        for i, value in zip(members, left.tolist(), strict=True):
            turns = tuple(replace(turn, contribution=value) for turn in batch[i].turns)
            found[i] = replace(batch[i], turns=turns)
    return found
