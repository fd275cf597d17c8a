"""The learner: turns credited rows into the next version of the resident policy.

It trains the very tensors that the engine samples from, and reads log-probabilities at
the temperature of the sampler. On demand it carries a critic on the policy's trunk and
keeps a frozen copy of the trained weights as reference policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from palaestra.core.errors import InputError
from palaestra.learning.critics.value import (
    AttachedCritic,
    Critic,
    Regression,
    ValueUpdate,
    end_values,
    row_values,
)
from palaestra.learning.losses.tokens import MAX_LOG_RATIO, TokenLoss, Tokens
from palaestra.learning.masters import MasterOptimiser, Optimisation, Parts
from palaestra.learning.packing import Micro, Trained, micro_batches, per_row
from palaestra.learning.selection import Selection
from palaestra.models.resident import ResidentModel

EntropyTerm = Callable[[Tensor, Tokens, Tensor], Tensor]
"""(entropy [M] in nats, with gradient; the tokens; their weights [M]) -> scalar of the loss."""

LOGIT_CHUNK = 512  # positions whose logits over the whole vocabulary exist at once
CLIPPED = 0.2  # figures count ratios outside 1 +- this, whatever the loss clips at


@dataclass(frozen=True, slots=True)
class Update:
    """What one optimiser step did; means are over the batch's trained tokens."""

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


class Learner:
    """Owns the optimiser of one resident model."""

    def __init__(
        self,
        model: ResidentModel,
        selection: Selection,
        optimisation: Optimisation,
        *,
        temperature: float = 1.0,
        critic: Critic | None = None,
        keep_reference: bool = False,
    ) -> None:
        """Train the selected weights of `model`.

        Args:
            model: acts and learns with the same weights.
            selection: which of its weights move.
            optimisation: how they move.
            temperature: at which the sampler samples; log-probabilities are taken there too.
            critic: adds a value head to the policy; None trains no values.
            keep_reference: copy the trained weights as they are now, for `reference`.
        """
        self.model, self.optimisation, self.temperature = model, optimisation, temperature
        self.parameters, self.frozen = selection.parameters, selection.frozen_layers
        self._optimiser = MasterOptimiser(self.parameters, optimisation)
        self._critic = AttachedCritic(model.network, critic, optimisation) if critic else None
        self._reference: dict[str, Tensor] = {}
        if keep_reference:
            self.set_reference()

    def close(self) -> None:
        """Let go of the model, so that another learner can train it."""
        self._optimiser.close()

    def update(
        self,
        rows: Sequence[Trained],
        loss: TokenLoss,
        *,
        learning_rate: float | None = None,
        entropy: EntropyTerm | None = None,
        proximal: int | None = None,
        whole_rollouts: bool = False,
    ) -> Update:
        """One optimiser step on the weighted sum of `loss` over all trained tokens.

        Args:
            rows: the whole batch of the step; the loss is not divided by anything.
            loss: per token, see `losses`.
            learning_rate: of the policy, from now on; None leaves it as it is.
            entropy: a term that is added once per micro-batch, so linear in the tokens.
            proximal: the version that `lp_old` is of; None means the present one. The
                weights under training count as one version ahead of it.
            whole_rollouts: no micro-batch parts a rollout; for losses over whole rollouts.
        """
        sums, version = _Sums(), self.model.version
        regression = self._critic.regression(rows) if self._critic else None
        for group in micro_batches(
            rows, self.optimisation.micro_tokens, whole_rollouts=whole_rollouts
        ):
            micro = Micro(group, self.model.network)
            hidden = self._hidden(micro)
            lp, nats = self._logprobs(hidden, micro.targets, with_gradient=entropy is not None)
            tokens = micro.seen(
                lp, current=version + 1, proximal=version if proximal is None else proximal
            )
            total = (loss(tokens) * micro.weight).sum()
            if entropy is not None:
                total = total + entropy(nats, tokens, micro.weight)
            policy = total.detach()
            if self._critic is not None and regression is not None:
                values = self._critic.values(hidden)
                coefficient = self._critic.settings.coefficient
                total = total + coefficient * regression.add(values, micro)
            total.backward()
            sums.add(policy, tokens, nats.detach(), len(micro.tokens))
        norm = self._optimiser.step(learning_rate)
        if self._critic is not None:
            self._critic.optimiser.step()
        self.model.updated()
        return sums.update(norm, regression)

    def logprobs(self, rows: Sequence[Trained]) -> list[list[float]]:
        """Log-probabilities of the trained tokens of each row under the present weights."""

        def compute(group: list[Trained]) -> Tensor:
            micro = Micro(group, self.model.network)
            lp, _ = self._logprobs(self._hidden(micro), micro.targets, with_gradient=False)
            return lp

        with torch.no_grad():
            return per_row(rows, self.optimisation.micro_tokens, compute)

    # ── the reference policy ─────────────────────────────────────────────────

    def set_reference(self) -> None:
        """From now on, the reference policy is the present one."""
        self._reference = {name: p.detach().clone() for name, p in self.parameters.items()}

    def reference(self, rows: Sequence[Trained]) -> list[list[float]]:
        """As `logprobs`, under the reference policy; the present weights stay as they are.

        Raises:
            InputError: none is kept.
        """
        if not self._reference:
            raise InputError(
                "The learner keeps no reference policy; construct it with keep_reference=True."
            )
        with self._as_reference():
            return self.logprobs(rows)

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """The model is the reference policy; both sets of tensors change places, uncopied."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, parameter in self.parameters.items():
            parameter.data, self._reference[name] = self._reference[name], parameter.data

    # ── the critic ───────────────────────────────────────────────────────────

    def values(self, rows: Sequence[Trained]) -> list[list[float]]:
        """The critic's value before each trained token of each row.

        Raises:
            InputError: the learner has no critic.
        """
        head = self._with_critic().head
        return row_values(self.model.network, head, rows, self.optimisation.micro_tokens)

    def end_values(self, rows: Sequence[Trained]) -> list[float]:
        """The critic's value after each row's last token, to bootstrap a rollout cut off there.

        Raises:
            InputError: the learner has no critic.
        """
        head = self._with_critic().head
        return end_values(self.model.network, head, rows, self.optimisation.micro_tokens)

    def update_values(self, rows: Sequence[Trained]) -> ValueUpdate:
        """One optimiser step of the value head alone, unclipped; nothing of the policy moves.

        Raises:
            InputError: the learner has no critic, or the rows have no targets.
        """
        return self._with_critic().update(rows, self.optimisation.micro_tokens)

    def _with_critic(self) -> AttachedCritic:
        if self._critic is None:
            raise InputError("The learner has no critic; construct it with critic=Critic(…).")
        return self._critic

    # ── stopping and going on ────────────────────────────────────────────────

    def state(self) -> Parts:
        """Everything a resumed run needs: weights, moments, the critic's, and the reference."""
        parts = self._optimiser.state()
        if self._critic is not None:
            for part, tensors in self._critic.optimiser.state().items():
                parts[part].update(tensors)
        if self._reference:
            parts["reference"] = dict(self._reference)
        return parts

    @torch.no_grad()
    def restore(self, parts: Parts) -> None:
        """Put back what `state` gave.

        A critic or a reference that the state does not hold begins anew, or stays as it is.
        """
        self._optimiser.restore(parts)
        if self._critic is not None:
            self._critic.restore(parts)
        if self._reference and "reference" in parts:
            for name, tensor in self._reference.items():
                tensor.copy_(parts["reference"][name])
        self.model.engine.clear()

    # ── passes through the network ───────────────────────────────────────────

    def _hidden(self, micro: Micro) -> Tensor:
        """Hidden states [M, width] that the trained tokens are predicted from."""
        return micro.hidden(self.frozen)[micro.predictors]

    def _logprobs(
        self, hidden: Tensor, targets: Tensor, *, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities [M] (with gradient) and entropies [M] (with gradient if asked for)."""
        parts = [
            checkpoint(self._predict, h, t, with_gradient, use_reentrant=False)
            for h, t in zip(hidden.split(LOGIT_CHUNK), targets.split(LOGIT_CHUNK), strict=True)
        ]
        return torch.cat([lp for lp, _ in parts]), torch.cat([nats for _, nats in parts])

    def _predict(
        self, hidden: Tensor, targets: Tensor, with_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        network = self.model.network
        logits = network.logits(hidden).to(network.wide_dtype) / self.temperature
        every = torch.log_softmax(logits, dim=-1)
        lp = every.gather(1, targets.unsqueeze(1)).squeeze(1)
        with torch.set_grad_enabled(with_gradient and torch.is_grad_enabled()):
            entropy = -(every.exp() * every).sum(dim=-1)
        return lp, entropy


class _Sums:
    """Running sums over micro-batches."""

    def __init__(self) -> None:
        self.loss = self.entropy = self.kl = self.low = self.high = 0.0
        self.gap = self.gap_max = self.ratio_max = 0.0
        self.tokens = self.processed = 0

    def add(self, loss: Tensor, tokens: Tokens, entropy: Tensor, processed: int) -> None:
        lp = tokens.lp.detach()
        moved = (lp - tokens.lp_old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = moved.exp()
        gap = (lp - tokens.lp_beh).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).abs()
        self.loss += float(loss)
        self.entropy += float(entropy.sum())
        self.kl += float((ratio - 1 - moved).sum())
        self.low += float((ratio < 1 - CLIPPED).sum())
        self.high += float((ratio > 1 + CLIPPED).sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        self.gap += float(gap.sum())
        self.gap_max = max(self.gap_max, float(gap.max()))
        self.tokens += len(lp)
        self.processed += processed

    def update(self, norm: float, regression: Regression | None) -> Update:
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
