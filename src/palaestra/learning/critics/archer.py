"""ArCHer: an off-policy critic of whole replies, whose advantages train the policy's tokens.

Two Q heads judge a reply in its history and two V heads judge the history alone. They
learn from a replay buffer of all rollouts, bootstrapping across turns from a slow copy of
themselves. A turn's advantage is min(Q) - min(V): the policy takes it for every token of
the reply, summed over tokens, without ratio or clip (the credit rule `archer`).

Source: Zhou et al. 2024, the authors' release. There the critic is an encoder that reads
history and reply separately; here one causal network reads them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from palaestra.core.episode import derive_seed
from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.credit.rule import discounted, explained_variance
from palaestra.learning.critics.encoder import (
    AT_ONCE,
    Reply,
    head,
    parts,
    replies,
    states_at,
)
from palaestra.learning.critics.optimiser import Optimiser, polyak, slow_copy, weights_of
from palaestra.learning.critics.replay_buffer import Replay, Transition, transitions
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory
from palaestra.models.local.network import DecoderNetwork

Propose = Callable[[Sequence[tuple[int, ...]], int], Sequence[Sequence[int]]]
"""Histories and a seed to one reply each, freshly sampled from the present policy."""


def q_targets(rewards: Tensor, done: Tensor, next_values: Tensor, *, gamma: float = 0.95) -> Tensor:
    """Return the targets of the Q heads: `r + (1 - done) * gamma * V_target(next history)`.

    Source: ArCHer release. V heads have no formula of their own: their targets are the slow
    copy's Q of a fresh reply.

    Args:
        rewards: [N], of the turn.
        done: [N] bool, whether the episode ended with it.
        next_values: [..., N], of the slow copy's V heads.
        gamma: discount per turn.

    Returns:
        [..., N].
    """
    return rewards + gamma * torch.where(done, 0.0, next_values)


def turn_advantages(q: Tensor, v: Tensor) -> Tensor:
    """Return how much better a reply is than the policy's average: `min(Q) - min(V)`.

    Source: ArCHer release.

    Args:
        q: [2, N], of the two Q heads.
        v: [2, N], of the two V heads.

    Returns:
        [N], in units of return.
    """
    return q.min(dim=0).values - v.min(dim=0).values


@dataclass(frozen=True, slots=True)
class ArcherPlan:
    """Settings of the critic's training; the defaults are the release's, but for the batch.

    There an update has 256 turns of any rollouts. Here it has all turns of some rollouts, since
    what these share is computed once.
    """

    gamma: float = 0.95  # per turn
    tau: float = 0.1  # share by which the slow copy moves, once per update
    updates: int = 50  # per iteration
    batch: int = 64  # rollouts per update
    buffer: int = 100_000  # transitions remembered
    warmup: int = 20  # iterations before the policy learns from the critic
    learning_rate: float = 2e-5
    at_once: int = AT_ONCE  # transitions per pass


class TurnCritic(nn.Module):
    """A network with twin heads on the states of histories and replies."""

    def __init__(self, network: DecoderNetwork, seed: int) -> None:
        super().__init__()
        self.network = network
        generator = torch.Generator().manual_seed(seed)
        self.q = nn.ModuleList(head(network, 1, generator, states=2) for _ in range(2))
        self.v = nn.ModuleList(head(network, 1, generator) for _ in range(2))

    def forward(
        self, replied: Sequence[Reply], histories: Sequence[Sequence[int]] = ()
    ) -> tuple[Tensor, Tensor]:
        """Map replies [N] to Q [2, N] of them, and V [2, N] of their histories or of M others.

        In one pass, since what histories and replies share at their beginning is run once.
        """
        rows = [reply.row[: reply.end] for reply in replied]
        ends: list[Sequence[int]] = [(reply.start - 1, reply.end - 1) for reply in replied]
        lasts = [(len(history) - 1,) for history in histories]
        states = states_at(self.network, [*rows, *histories], [*ends, *lasts])
        own = states[: 2 * len(replied)].view(len(replied), 2, -1)
        q = torch.stack([q(own.flatten(1)).squeeze(1) for q in self.q])
        judged = states[2 * len(replied) :] if histories else own[:, 0]
        return q, torch.stack([v(judged).squeeze(1) for v in self.v])


class Archer:
    """An off-policy critic of whole replies, whose advantages train the policy's tokens.

    Holds the critic, its slow copy, its replay buffer and its optimiser.
    """

    def __init__(
        self,
        network: DecoderNetwork,
        propose: Propose,
        plan: ArcherPlan | None = None,
        *,
        seed: int,
    ) -> None:
        """Make a critic on `network`, which it trains in place.

        Args:
            network: of the policy's vocabulary; never the policy's own.
            propose: samples replies of the present policy, whose Q is the target of V.
            plan: the settings.
            seed: of the heads, the order in which the buffer is read, and fresh replies.
        """
        self.propose, self.seed = propose, seed
        self.plan = plan or ArcherPlan()
        self.critic = TurnCritic(network, seed)
        self.target = slow_copy(self.critic, network.wide_dtype)
        self.replay = Replay(self.plan.buffer)
        self.iterations = 0
        self.proposed = 0  # tokens of fresh replies in the last iteration
        self._optimiser = Optimiser(self.critic, self.plan.learning_rate, seed=seed)

    @property
    def warming(self) -> bool:
        """Whether the critic is still warming up: leave the policy alone."""
        return self.iterations < self.plan.warmup

    def learn(self, trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> list[float]:
        """Run one iteration: store the rollouts, then fit the critic to the buffer.

        Returns:
            the loss of each update: squared errors summed over the four heads.

        Raises:
            InputError: nothing to learn from, or rows of other trajectories.
        """
        self.replay.extend(transitions(trajectories, rows))
        if not self.replay.items:
            raise InputError(
                "The critic has no transition to learn from: every rollout was cut off in its "
                "first turn; raise the limit of turns."
            )
        self.proposed, losses, rollouts = 0, [], self.replay.rollouts()
        for _ in range(self.plan.updates):
            chosen = self._optimiser.minibatch(rollouts, self.plan.batch)
            batch = [transition for rollout in chosen for transition in rollout]
            losses.append(self._optimiser.step(self._losses(batch)))
            polyak(self.target.parameters(), self.critic.parameters(), self.plan.tau)
        self.iterations += 1
        return losses

    def advantages(
        self, trajectories: Sequence[Trajectory], rows: Sequence[Row]
    ) -> list[list[float]]:
        """Return the advantage of each turn, in units of return."""
        replied = replies(trajectories, rows)
        values = iter(turn_advantages(*self._judged(replied)).tolist())
        return [[next(values) for _ in turns] for turns in replied]

    def explained(self, trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> float:
        """Return the share of the variance of discounted returns-to-go that min(Q) explains.

        Of rollouts that it has not learned from, it shows when the critic is warm.
        """
        q, _ = self._judged(replies(trajectories, rows))
        returns = [x for t in trajectories for x in discounted(t.rewards, self.plan.gamma)]
        return explained_variance(q.min(dim=0).values.cpu(), torch.tensor(returns))

    @torch.no_grad()
    def _judged(self, replied: Sequence[Sequence[Reply]]) -> tuple[Tensor, Tensor]:
        """Return Q and V of all turns, [2, N] each."""
        flat = [reply for turns in replied for reply in turns]
        found = [self.critic(part) for part in parts(flat, self.plan.at_once)]
        return torch.cat([q for q, _ in found], dim=1), torch.cat([v for _, v in found], dim=1)

    def state(self) -> Parts:
        """Return everything that a resumed run needs, the buffer included."""
        state = self._optimiser.state()
        state["counters"]["iterations"] = torch.tensor(self.iterations)
        return {**state, "target": weights_of(self.target), "replay": self.replay.state()}

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)
        self.target.load_state_dict(parts["target"])
        self.replay.restore(parts["replay"])
        self.iterations = int(parts["counters"]["iterations"])

    def _losses(self, batch: Sequence[Transition]) -> Iterator[Tensor]:
        seed = derive_seed("fresh replies", self.seed, self._optimiser.updates)
        proposed = self.propose([transition.reply.history for transition in batch], seed)
        self.proposed += sum(map(len, proposed))
        fresh = iter(proposed)
        for part in parts(batch, self.plan.at_once):
            wanted_q, wanted_v = self._targets(part, [next(fresh) for _ in part])
            q, v = self.critic([transition.reply for transition in part])
            squares = (q - wanted_q).square() + (v - wanted_v).square()  # [2, N]
            yield squares.sum() / len(batch)

    @torch.no_grad()
    def _targets(
        self, batch: Sequence[Transition], fresh: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """Return targets for Q and V, both [2, N], from the slow copy and a fresh reply each."""
        replied = [_instead(t.reply, tokens) for t, tokens in zip(batch, fresh, strict=True)]
        # after the episode's end any history works: `done` masks its value
        after = [t.following or t.reply for t in batch]
        histories = [reply.row[: reply.start] for reply in after]
        wanted_v, next_values = self.target(replied, histories)
        device = next_values.device
        rewards = torch.tensor([t.reward for t in batch], device=device)
        done = torch.tensor([t.following is None for t in batch], device=device)
        return q_targets(rewards, done, next_values, gamma=self.plan.gamma), wanted_v


def _instead(reply: Reply, tokens: Sequence[int]) -> Reply:
    """Return other tokens in the same history."""
    row = (*reply.row[: reply.start], *tokens)
    return Reply(row, reply.start, len(row))
