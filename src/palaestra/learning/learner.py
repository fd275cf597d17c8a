"""The learner: turns credited rows into the next version of the resident policy.

It trains the very tensors that the engine samples from. Where they are narrower
than fp32, the optimiser works on fp32 master copies and gradients accumulate in
fp32; after each step the masters are rounded back into the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from palaestra.learning.packing import Micro, Trained, micro_batches
from palaestra.learning.selection import Selection
from palaestra.models.resident import ResidentModel

TokenLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(lp [M], lp_old [M], advantage [M]) -> loss per token [M]."""

LOGIT_CHUNK = 512  # positions whose logits over the whole vocabulary exist at once


@dataclass(frozen=True, slots=True)
class Optimisation:
    """How the weights move."""

    learning_rate: float
    micro_tokens: int = 2048  # tokens per forward and backward pass
    clip_norm: float = 1.0  # bound on the gradient's norm
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Update:
    """What one optimiser step did; means are over the batch's trained tokens."""

    loss: float
    gradient_norm: float
    entropy: float  # nats per token
    kl: float  # k3 estimate of KL(sampler || learner), nats per token
    gap: float  # mean |log-probability of the learner - of the sampler|
    gap_max: float
    clipped: float  # share of tokens whose ratio lies outside 1 +- 0.2
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
    ) -> None:
        """Train the selected weights of `model`.

        Args:
            temperature: at which the sampler samples; log-probabilities are taken there too.
        """
        self.model, self.optimisation, self.temperature = model, optimisation, temperature
        self.parameters, self.frozen = selection.parameters, selection.frozen_layers
        self.masters = {
            name: p if p.dtype == torch.float32 else nn.Parameter(p.detach().float())
            for name, p in self.parameters.items()
        }
        self._optimiser = torch.optim.AdamW(
            list(self.masters.values()),
            lr=optimisation.learning_rate,
            betas=optimisation.betas,
            weight_decay=optimisation.weight_decay,
            fused=True,
        )
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._widen(self.masters[name]))
            for name, parameter in self.parameters.items()
            if parameter is not self.masters[name]
        ]

    def close(self) -> None:
        """Let go of the model, so that another learner can train it."""
        for hook in self._hooks:
            hook.remove()

    def update(
        self, rows: Sequence[Trained], loss: TokenLoss, *, learning_rate: float | None = None
    ) -> Update:
        """One optimiser step on the weighted sum of `loss` over all trained tokens."""
        sums = _Sums()
        for group in micro_batches(rows, self.optimisation.micro_tokens):
            micro = Micro(group, self.model.network.device)
            lp, entropy = self._logprobs(micro)
            per_token = loss(lp, micro.lp_old, micro.advantage)
            total = (per_token * micro.weight).sum()
            total.backward()
            sums.add(total.detach(), lp.detach(), entropy, micro)
        norm = nn.utils.clip_grad_norm_(self.masters.values(), self.optimisation.clip_norm)
        if learning_rate is not None:
            for group_ in self._optimiser.param_groups:
                group_["lr"] = learning_rate
        self._step(norm)
        return sums.update(float(norm))

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Trained]) -> list[list[float]]:
        """Log-probabilities of the trained tokens of each row under the present weights."""
        found: dict[int, list[float]] = {}
        for group in micro_batches(rows, self.optimisation.micro_tokens):
            lp, _ = self._logprobs(Micro(group, self.model.network.device))
            values = iter(lp.tolist())
            for row in group:
                found[id(row)] = [next(values) for on in row.mask if on]
        return [found[id(row)] for row in rows]

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Everything a resumed run needs: master weights and the optimiser's moments."""
        moments = self._optimiser.state
        parts: dict[str, dict[str, Tensor]] = {
            "weights": {name: m.detach() for name, m in self.masters.items()}
        }
        for part in ("exp_avg", "exp_avg_sq", "step"):
            parts[part] = {
                name: moments[m][part] for name, m in self.masters.items() if m in moments
            }
        return parts

    @torch.no_grad()
    def restore(self, parts: dict[str, dict[str, Tensor]]) -> None:
        """Put back what `state` gave."""
        self._optimiser.state.clear()
        for name, master in self.masters.items():
            master.copy_(parts["weights"][name])
            if name in parts["step"]:
                self._optimiser.state[master] = {
                    part: parts[part][name].clone() for part in ("step", "exp_avg", "exp_avg_sq")
                }
        self._publish()
        self.model.engine.clear()

    def _step(self, norm: Tensor) -> None:
        if math.isfinite(float(norm)):  # a non-finite gradient would destroy the weights
            self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        self._publish()
        self.model.updated()

    @torch.no_grad()
    def _publish(self) -> None:
        """Round the masters into the tensors that the engine samples from."""
        for name, parameter in self.parameters.items():
            if parameter is not self.masters[name]:
                parameter.copy_(self.masters[name])

    def _widen(self, master: nn.Parameter) -> Callable[[Tensor], None]:
        def add(parameter: Tensor) -> None:
            assert parameter.grad is not None
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                master.grad.add_(parameter.grad)
            parameter.grad = None

        return add

    def _logprobs(self, micro: Micro) -> tuple[Tensor, Tensor]:
        """Log-probabilities [M] (with gradient) and entropies [M] of the trained tokens."""
        network = self.model.network
        positions = micro.positions
        x = network.embed(micro.tokens)
        with torch.no_grad():
            x = network.run(x, positions, micro.attend, last=self.frozen) if self.frozen else x
        x = network.run(x, positions, micro.attend, first=self.frozen)
        hidden = x[micro.predictors]
        parts = [
            checkpoint(self._head, h, t, use_reentrant=False)
            for h, t in zip(
                hidden.split(LOGIT_CHUNK), micro.targets.split(LOGIT_CHUNK), strict=True
            )
        ]
        return torch.cat([lp for lp, _ in parts]), torch.cat([e for _, e in parts])

    def _head(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model.network.logits(hidden).float() / self.temperature
        every = torch.log_softmax(logits, dim=-1)
        lp = every.gather(1, targets.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            entropy = -(every.exp() * every).sum(dim=-1)
        return lp, entropy


class _Sums:
    """Running sums over micro-batches."""

    def __init__(self) -> None:
        self.loss = self.entropy = self.kl = self.gap = self.gap_max = self.clipped = 0.0
        self.tokens = self.processed = 0

    def add(self, loss: Tensor, lp: Tensor, entropy: Tensor, micro: Micro) -> None:
        difference = (lp - micro.lp_old).clamp(-20, 20)
        self.loss += float(loss)
        self.entropy += float(entropy.sum())
        self.kl += float((difference.exp() - 1 - difference).sum())
        self.gap += float(difference.abs().sum())
        self.gap_max = max(self.gap_max, float(difference.abs().max()))
        self.clipped += float(((difference.exp() - 1).abs() > 0.2).sum())
        self.tokens += len(lp)
        self.processed += len(micro.tokens)

    def update(self, norm: float) -> Update:
        n = max(self.tokens, 1)
        return Update(
            loss=self.loss,
            gradient_norm=norm,
            entropy=self.entropy / n,
            kl=self.kl / n,
            gap=self.gap / n,
            gap_max=self.gap_max,
            clipped=self.clipped / n,
            tokens=self.tokens,
            processed=self.processed,
        )
