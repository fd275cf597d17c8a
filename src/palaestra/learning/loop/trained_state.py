"""What a process trains: weights with their optimiser, heads on them, a reference policy.

Every learner rank has one. Here is what each does by itself in the steps that `leading` describes,
and what a checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from palaestra.learning.compute.master_weights import (
    MOMENTS,
    WEIGHTS,
    MasterOptimiser,
    Optimisation,
    Parts,
)
from palaestra.learning.compute.sharded_optimiser import ShardedOptimiser
from palaestra.learning.compute.shards import Sharding
from palaestra.learning.compute.weight_selection import Selection
from palaestra.learning.critics.privileged_head import PrivilegedHead, PrivilegedLoss
from palaestra.learning.critics.value_head import AttachedCritic, Critic
from palaestra.learning.loop.leading import gradients_of, summed
from palaestra.learning.parallel import Ranks, checksum
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.rounding import round_into

REFERENCE = "reference"  # the part of a checkpoint


class TrainedState:
    """Weights, moments, heads and reference policy of one process."""

    def __init__(
        self,
        network: DecoderNetwork,
        selection: Selection,
        optimisation: Optimisation,
        *,
        critic: Critic | None,
        privileged: PrivilegedLoss | None,
        sharding: Sharding | None,
    ) -> None:
        """Begin with the network's weights; see `Learner`."""
        parameters = self.parameters = selection.parameters
        self.sharding, self._network, self._beside = sharding, network, selection.beside
        if sharding is None:
            self.optimiser = MasterOptimiser(parameters, optimisation)
        else:
            layer_of = _no_layer if network.whole else network.layer_of
            self.optimiser = ShardedOptimiser(parameters, optimisation, sharding, layer_of)
        self.critic = AttachedCritic(network, critic, optimisation) if critic else None
        self.privileged = PrivilegedHead(network, privileged, optimisation) if privileged else None
        heads = (self.critic, self.privileged)
        self._heads = [head for head in heads if head is not None]
        self.reference: dict[str, Tensor] = {}

    # ── the reference policy ─────────────────────────────────────────────────

    def set_reference(self) -> None:
        """Make the present policy the reference policy."""
        self.reference = {name: p.detach().clone() for name, p in self.parameters.items()}

    def exchange(self) -> None:
        """Exchange the weights for those of the reference policy, and back."""
        for name, parameter in self.parameters.items():
            parameter.data, self.reference[name] = self.reference[name], parameter.data

    # ── one optimiser step ───────────────────────────────────────────────────

    @property
    def totals(self) -> dict[str, nn.Parameter]:
        """Whose gradients are summed after the last pass, in the precision of their sums.

        With `sharding`, those of the policy may have been summed by then.
        """
        return {**self.optimiser.totals, **self._of_heads}

    @property
    def _of_heads(self) -> dict[str, nn.Parameter]:
        return {n: m for head in self._heads for n, m in head.optimiser.master_weights.items()}

    def adding(self) -> AbstractContextManager[None]:
        """Return a context for a backward pass; with `sharding`, all ranks run theirs at once."""
        return self.optimiser.adding()

    def reached(self) -> list[str]:
        """Return the names of all that has a gradient in this process."""
        found = {*self.optimiser.reached, *gradients_of(self.totals)}
        return [name for name in (*self.parameters, *self._of_heads) if name in found]

    def sum_over(self, ranks: Ranks, names: Sequence[str], ordered: bool) -> None:
        """Sum the gradients over all ranks, which do it at once.

        Args:
            ranks: to sum over.
            names: of what has a gradient on any rank; the rest stays without.
            ordered: the whole sum is that of rank 0.
        """
        totals = self.totals
        summed(ranks, totals, [name for name in names if name in totals], ordered=ordered)
        self.optimiser.keep_own(names)

    def vote(self) -> str:
        """Return a hash of what all ranks must hold alike before they step."""
        own = gradients_of(self._of_heads).values()
        return checksum([*self.optimiser.alike(), *own])

    def step(self, learning_rate: float) -> float:
        """Take the optimiser step along the summed gradients; return the policy's norm."""
        norm = self.optimiser.step(learning_rate)
        for head in self._heads:
            head.optimiser.step()
        return norm

    def checksum(self) -> str:
        """Return a hash of the network and of all that every rank holds of what is trained."""
        trained = {**self.optimiser.held_by_all, **self._of_heads}
        return checksum([*self._network.state_dict().values(), *trained.values()])

    def drop_gradients(self) -> None:
        """Drop the gradients of a step that was not taken."""
        self.optimiser.drop_gradients()
        for head in self._heads:
            head.optimiser.drop_gradients()

    # ── stopping and resuming ────────────────────────────────────────────────

    @property
    def parts(self) -> list[str]:
        """The names of the parts of a whole state."""
        return [WEIGHTS, *MOMENTS, *([REFERENCE] if self.reference else ())]

    def part(self, name: str) -> dict[str, Tensor]:
        """Return a part of a whole state; with `sharding`, rank 0 does, and all must take part.

        Among the weights are those of adapters that do not learn here.
        """
        if name == REFERENCE:
            return dict(self.reference)
        found = self.optimiser.part(name)
        if name == WEIGHTS:
            found |= {n: p.detach() for n, p in self._beside.items()}
        for head in self._heads:
            found |= head.optimiser.part(name)
        return found

    def beginning(self) -> Parts:
        """Return what ranks take over that join; with `sharding`, before the first step only."""
        if self.sharding is None:
            return {name: self.part(name) for name in self.parts}
        weights = {name: p.detach() for name, p in self.parameters.items()}
        return self.with_own({WEIGHTS: weights})

    def with_own(self, parts: Mapping[str, Mapping[str, Tensor]]) -> Parts:
        """Return a whole state: the policy's is given, and all else is as here."""
        found = {
            name: {n: t for n, t in parts.get(name, {}).items() if n in self.parameters}
            for name in (WEIGHTS, *MOMENTS)
        }
        found[WEIGHTS] |= {name: p.detach() for name, p in self._beside.items()}
        for head in self._heads:
            for name, tensors in head.optimiser.state().items():
                found[name].update(tensors)
        if self.reference:
            found[REFERENCE] = dict(self.reference)
        return found

    def kept(self, part: str, name: str, tensor: Tensor) -> Tensor:
        """Return what this process keeps of a tensor of a whole state."""
        return self.optimiser.own(part, name, tensor)

    @torch.no_grad()
    def load(self, parts: Parts) -> None:
        """Restore a whole state, or what `kept` returned of it; `publish` completes it."""
        self.optimiser.load(parts)
        for name, parameter in self._beside.items():
            round_into(parameter, parts[WEIGHTS][name].to(parameter.device))
        for head in self._heads:
            head.restore(parts)
        self.load_reference(parts)

    @torch.no_grad()
    def load_reference(self, parts: Parts) -> None:
        """Restore the reference policy of a state, if there is one here and there."""
        if self.reference and REFERENCE in parts:
            for name, tensor in self.reference.items():
                tensor.copy_(parts[REFERENCE][name])

    def load_critic(self, parts: Parts) -> None:
        """Restore the critic's part of a state."""
        assert self.critic is not None  # rank 0 has one
        self.critic.restore(parts)

    def publish(self) -> None:
        """Make the loaded weights those of the policy; with `sharding`, all ranks do it at once."""
        self.optimiser.publish()


def _no_layer(name: str) -> int | None:
    """Return the layer of a parameter where a backward pass may reach them in any order."""
    return None
