"""Staleness: how many rollouts may start, so that none is trained on too late.

Rollouts are numbered in the order in which they start, and the learner consumes a batch
of them per version. Then the n-th is consumed at version n // batch, and starting only
rollouts below (eta + version + 1) * batch keeps each within `eta` versions of its sampler.
"""

from __future__ import annotations

from palaestra.core.errors import InputError


def staleness_capacity(
    eta: int, version: int, batch: int, accepted: int, running: int, max_concurrent: int
) -> int:
    """Return how many new rollouts may start now.

    Source: Fu et al. 2025, as in AReaL (which lets the number fall below zero):
    `min(max_concurrent - running, (eta + version + 1) * batch - (accepted + running))`.

    The bound holds for rollouts consumed in the order of their start. A rollout that others
    overtake can become older; record the version of each token.

    Args:
        eta: most versions between sampling and training; 0 is synchronous, 2 to 8 are typical.
        version: of the present weights, counted from 0.
        batch: rollouts that one version consumes.
        accepted: rollouts finished and kept since version 0, consumed or not.
        running: running rollouts.
        max_concurrent: most running rollouts at once.

    Returns:
        at least 0.

    Raises:
        InputError: a count is negative, or batch or max_concurrent are below 1.
    """
    if min(eta, version, accepted, running) < 0 or min(batch, max_concurrent) < 1:
        raise InputError(
            f"Staleness control got eta={eta}, version={version}, batch={batch}, "
            f"accepted={accepted}, running={running}, max_concurrent={max_concurrent}; batch and "
            "max_concurrent must be at least 1 and the others not negative."
        )
    fresh = (eta + version + 1) * batch - (accepted + running)
    return max(0, min(max_concurrent - running, fresh))
