"""Metrics of one optimiser step, summed over its micro-batches: of all tokens, and by role."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from palaestra.core.errors import InputError, PalaestraError
from palaestra.learning.critics.value_head import Regression
from palaestra.learning.losses.kl import k3
from palaestra.learning.losses.trained_tokens import MAX_LOG_RATIO, Tokens

CLIPPED = 0.2  # metrics count ratios outside 1 +- this, whatever the loss clips at


@dataclass(frozen=True, slots=True)
class Update:
    """Metrics of one optimiser step; means are over the batch's trained tokens."""

    loss: float  # of the policy, an entropy term included
    gradient_norm: float
    entropy: float  # nats per token
    kl: float  # k3 estimate of KL(proximal policy || learner), nats per token
    gap: float  # mean |log-probability of the learner - of the sampler|
    gap_max: float
    clipped: float  # share of tokens whose ratio to the proximal policy lies outside 1 +- 0.2
    clipped_low: float  # below
    clipped_high: float  # above
    ratio_max: float
    value_loss: float  # mean over tokens with a target; 0 without a critic
    explained_variance: float  # share of the targets' variance; 0 without a critic
    tokens: int  # trained tokens
    processed: int  # all tokens run through the network
    by_role: Mapping[str, RoleUpdate] = field(default_factory=dict)
    """Where several adapters learn: of each, by the role that it belongs to."""

    gradient_cosine: Mapping[str, float] = field(default_factory=dict)
    """Where gradients of task families were kept apart: of each pair, by their names."""

    privileged_loss: float | None = None
    """Mean squared error of privileged numbers over turns; None without a head that predicts."""

    def figures(self) -> dict[str, float]:
        """Return all metrics by name; those of a role or a pair are named METRIC/ROLE."""
        found = asdict(self)
        if self.privileged_loss is None:
            del found["privileged_loss"]
        for pair, cosine in found.pop("gradient_cosine").items():
            found[f"gradient_cosine/{pair}"] = cosine
        for role, figures in found.pop("by_role").items():
            found |= {f"{name}/{role}": value for name, value in figures.items()}
        return found


@dataclass(frozen=True, slots=True)
class RoleUpdate:
    """The metrics of one adapter in an optimiser step; see `Update`."""

    loss: float
    gradient_norm: float
    entropy: float
    kl: float
    gap: float
    clipped: float
    tokens: int


class Sums:
    """Running sums over micro-batches."""

    def __init__(self) -> None:
        self.loss = self.entropy = self.kl = self.low = self.high = 0.0
        self.gap = self.gap_max = self.ratio_max = 0.0
        self.tokens = self.processed = 0

    def add(self, loss: Tensor, tokens: Tokens, entropy: Tensor, processed: int) -> None:
        """Add one micro-batch: its loss, trained tokens, their entropies, and tokens run."""
        lp = tokens.lp.detach()
        moved = (lp - tokens.lp_old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = moved.exp()
        gap = (lp - tokens.lp_beh).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).abs()
        figures = [loss, entropy.sum(), k3(tokens.lp_old, lp).sum(), gap.sum()]
        figures += [(ratio < 1 - CLIPPED).sum(), (ratio > 1 + CLIPPED).sum()]
        figures += [ratio.max(), gap.max()]
        # read together, so that a device is synchronised once
        sums = torch.stack([figure.to(lp.dtype) for figure in figures]).tolist()
        self.loss += sums[0]
        self.entropy += sums[1]
        self.kl += sums[2]
        self.gap += sums[3]
        self.low += sums[4]
        self.high += sums[5]
        self.ratio_max = max(self.ratio_max, sums[6])
        self.gap_max = max(self.gap_max, sums[7])
        self.tokens += len(lp)
        self.processed += processed

    def check(self, loss: str) -> None:
        """Raise unless the sums are finite; `loss` is the name of the loss.

        Raises:
            InputError: the loss is not finite.
            PalaestraError: the log-probabilities under it are not.
        """
        if math.isfinite(self.loss):
            return
        if not math.isfinite(self.kl):
            raise PalaestraError(
                "The policy's log-probabilities are not finite: its weights have diverged; resume "
                "from an earlier checkpoint with a lower learning rate."
            )
        raise InputError(
            f"The loss '{loss}' adds up to {self.loss} over {self.tokens} tokens; return one "
            "finite number per token."
        )

    def update(self, norm: float, regression: Regression | None) -> Update:
        """Return the metrics; `norm` is the gradient's, `regression` the critic's."""
        n = max(self.tokens, 1)
        return Update(
            loss=self.loss,
            gradient_norm=norm,
            entropy=self.entropy / n,
            kl=self.kl / n,
            gap=self.gap / n,
            gap_max=self.gap_max,
            clipped=(self.low + self.high) / n,
            clipped_low=self.low / n,
            clipped_high=self.high / n,
            ratio_max=self.ratio_max,
            value_loss=regression.loss if regression else 0.0,
            explained_variance=regression.explained_variance if regression else 0.0,
            tokens=self.tokens,
            processed=self.processed,
        )

    def role_update(self, norm: float) -> RoleUpdate:
        """Return the metrics of one adapter; `norm` is its gradient's."""
        n = max(self.tokens, 1)
        return RoleUpdate(
            loss=self.loss,
            gradient_norm=norm,
            entropy=self.entropy / n,
            kl=self.kl / n,
            gap=self.gap / n,
            clipped=(self.low + self.high) / n,
            tokens=self.tokens,
        )


class StepSums:
    """Running sums of one step: over all micro-batches, and over those of each adapter."""

    def __init__(self, roles: Mapping[str, str] | None = None) -> None:
        """Keep the sums of some adapters apart too; `roles` are those that they belong to."""
        self.whole, self._roles = Sums(), roles or {}
        self._own: dict[str, Sums] = {}

    @property
    def adapters(self) -> list[str]:
        """The adapters that had tokens in the step, and whose sums are kept apart."""
        return list(self._own)

    def add(
        self, loss: Tensor, tokens: Tokens, entropy: Tensor, processed: int, adapter: str | None
    ) -> None:
        """Add one micro-batch, see `Sums.add`, which ran with that adapter."""
        self.whole.add(loss, tokens, entropy, processed)
        if adapter is not None and adapter in self._roles:
            own = self._own.setdefault(adapter, Sums())
            own.add(loss, tokens, entropy, processed)

    def update(
        self, norm: float, norms: Mapping[str, float], regression: Regression | None
    ) -> Update:
        """Return the metrics; `norms` are those of the gradients of `adapters`."""
        by_role = {self._roles[a]: own.role_update(norms[a]) for a, own in self._own.items()}
        return replace(self.whole.update(norm, regression), by_role=by_role)
