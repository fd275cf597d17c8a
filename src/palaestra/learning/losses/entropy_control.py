"""Entropy control over a run: the term of each step, and the history that it compares with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from palaestra.learning.losses.entropy import EntropyHistory, Smoother, entropy_bonus, epo
from palaestra.learning.losses.trained_tokens import Tokens

PREFIX = "entropy."  # of its figures in the state that a run keeps


@dataclass(frozen=True, slots=True)
class EntropyPlan:
    """Settings of the entropy term."""

    bonus: float  # weight of the entropy, per nat
    smoothing: float = 0.0  # weight of EPO's penalty within the term; 0 is the plain bonus
    form: Smoother = Smoother.SQUARED
    steps: int = 1  # of the whole run, for EPO's phase weight


class EntropyControl:
    """The entropy term of one reinforcement-learning step; a turn is an environment step."""

    def __init__(self, plan: EntropyPlan, step: int, memory: Mapping[str, float]) -> None:
        """Begin at `step` (1-based), with the state after the previous step."""
        self.plan, self.step = plan, step
        self.history = EntropyHistory(_numbered(memory, "sum"), _counted(memory))
        # by micro-batch, which is computed again where a rank is lost
        self._seen: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def term(self, entropy: Tensor, tokens: Tokens, weight: Tensor) -> Tensor:
        """Return a micro-batch's entropy part of the loss (the learner's `EntropyTerm`)."""
        if not self.plan.smoothing:
            return entropy_bonus(entropy, tokens.turn, weight, coefficient=self.plan.bonus)
        assert tokens.call is not None, "the learner numbers the calls"
        self._seen[id(tokens.call)] = (entropy.detach(), tokens.call, weight)
        return epo(
            entropy,
            tokens.call,
            weight,
            history=self.history,
            epoch=self.step - 1,
            epochs=self.plan.steps,
            bonus=self.plan.bonus,
            smoothing=self.plan.smoothing,
            smoother=self.plan.form,
        )

    def remembered(self) -> dict[str, float]:
        """Return the history with this step in it, as plain numbers."""
        history = self.history
        if self._seen:
            entropy, calls, weight = (
                torch.cat(part) for part in zip(*self._seen.values(), strict=True)
            )
            history = history.updated(entropy, calls, weight)
        sums = {f"{PREFIX}sum.{k}": v for k, v in history.sums.items()}
        return sums | {f"{PREFIX}count.{k}": float(v) for k, v in history.counts.items()}


def _numbered(memory: Mapping[str, float], kind: str) -> dict[int, float]:
    head = f"{PREFIX}{kind}."
    return {int(k.removeprefix(head)): v for k, v in memory.items() if k.startswith(head)}


def _counted(memory: Mapping[str, float]) -> dict[int, int]:
    return {step: int(count) for step, count in _numbered(memory, "count").items()}
