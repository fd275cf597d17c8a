"""Divergences between a student and a teacher at each trained token, without keeping logits.

Logits of both over a whole vocabulary exist for one chunk of positions at a time: the backward
pass computes those of each chunk again (Chen et al. 2016, activation checkpointing).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from palaestra.learning.losses.kl import Divergence, divergence
from palaestra.models.local.network import DecoderNetwork

CHUNK = 64
"""Positions whose logits exist at once. About ten tensors of a chunk's logits exist in fp32, which
is less than the logits of `logprobs.CHUNK` positions that `memory_budget` counts."""


def token_divergences(
    network: DecoderNetwork,
    hidden: Tensor,
    targets: Tensor,
    teacher: Tensor,
    teacher_logits: Callable[[Tensor], Tensor],
    temperature: float,
    direction: Divergence,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each token's divergence from the teacher, its log-probability and its entropy.

    Args:
        network: provides the student's `logits`.
        hidden: states of the last block that the student predicts the targets from, [M, width].
        targets: int64 [M].
        teacher: the states that the teacher predicts them from, [M, width].
        teacher_logits: turns such states into the teacher's logits, also in the backward pass.
        temperature: of the sampler; the logits of both are divided by it.
        direction: of the divergence.

    Returns:
        divergences [M] in nats, with gradient; log-probabilities [M] and entropies [M] of the
        student, without; all in at least fp32.
    """

    def compute(states: Tensor, theirs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.no_grad():
            given = teacher_logits(theirs).to(network.wide_dtype) / temperature
        scores = network.logits(states).to(network.wide_dtype) / temperature
        found = divergence(direction, scores, given)
        with torch.no_grad():
            logs = scores.log_softmax(1)
            lp = logs.gather(1, chosen.unsqueeze(1)).squeeze(1)
            return found, lp, -(logs.exp() * logs).sum(1)

    parts = [
        checkpoint(compute, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(
            hidden.split(CHUNK), teacher.split(CHUNK), targets.split(CHUNK), strict=True
        )
    ]
    divergences, lps, entropies = (torch.cat(found) for found in zip(*parts, strict=True))
    return divergences, lps, entropies
