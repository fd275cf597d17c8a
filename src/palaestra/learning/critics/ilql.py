"""ILQL: offline Q-learning on tokens that stays inside the data, and steers a policy with it.

Every sampled token is an action; the next state is the next token that the policy samples,
whatever the observations in between. V is an expectile of Q over the actions in the data, so
no action outside it is ever trusted. The advantage `min(Q) - V` then shifts the policy's
log-probabilities when it samples (ILQL, `steered_logits`), or weighs the tokens of the data when
it imitates them (IQL, `imitation_weights`).

Source: Snell et al. 2022, and the public JAX release that LMRL-Gym uses; the values of its
options are not known from there. The slow copy here holds the network and all heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.critics.encoder import (
    AT_ONCE,
    Reply,
    head,
    last_states,
    parts,
    replies,
    states_at,
)
from palaestra.learning.critics.optimiser import Optimiser, polyak, slow_copy, weights_of
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory
from palaestra.models.local.network import DecoderNetwork


def expectile_loss(target_q: Tensor, v: Tensor, *, tau: float = 0.7) -> Tensor:
    """Return half the square of `Q - V`, weighted tau where Q is above V and 1 - tau below.

    Source: IQL (Kostrikov et al. 2021), as in the ILQL release.

    Args:
        target_q: [M], the lower of the slow copy's two; no gradient flows into it.
        v: [M], as the result.
        tau: 0.5 gives the mean, towards 1 the maximum over the actions in the data.
    """
    difference = target_q.detach() - v
    weight = (tau - (difference < 0).to(difference.dtype)).abs()
    return 0.5 * weight * difference.square()


def temporal_difference_loss(
    q: Tensor, rewards: Tensor, next_v: Tensor, *, gamma: float = 0.99
) -> Tensor:
    """Return half the square of `Q - (r + gamma * V(s'))`.

    Source: ILQL release.

    Args:
        q: [..., M], of the tokens that were sampled; as the result.
        rewards: [M].
        next_v: [M], zero where the episode is done; no gradient flows into it.
        gamma: discount per token.
    """
    return 0.5 * (q - (rewards + gamma * next_v.detach())).square()


def ilql_loss(
    q: Tensor,
    target_q: Tensor,
    v: Tensor,
    next_v: Tensor,
    actions: Tensor,
    rewards: Tensor,
    *,
    gamma: float = 0.99,
    tau: float = 0.7,
    conservative: float = 0.01,
) -> Tensor:
    """Sum temporal differences of both Q, V's expectile loss, and a penalty on unseen tokens.

    Source: `ilql_loss` of the public release used by LMRL-Gym. The penalty (CQL; Kumar et al.
    2020) is the cross-entropy of each Q's logits with the sampled token: without it Q of
    tokens outside the data grows without bound.

    Args:
        q: [2, M, vocabulary], of both heads.
        target_q: [2, M], the slow copy's, of the sampled tokens.
        v: [M], in the state in which the token was sampled.
        next_v: [M], in the next one; zero where the episode is done.
        actions: [M] int64, the sampled tokens.
        rewards: [M].
        gamma, tau: as in the terms.
        conservative: weight of the penalty.

    Returns:
        a scalar: each term averaged over the M tokens, summed over the heads.
    """
    taken = _of_actions(q, actions)
    q_loss = temporal_difference_loss(taken, rewards, next_v, gamma=gamma).mean(dim=1).sum()
    v_loss = expectile_loss(target_q.min(dim=0).values, v, tau=tau).mean()
    hold = F.cross_entropy(q.flatten(0, 1), actions.repeat(len(q))) * len(q)
    return q_loss + v_loss + conservative * hold


def steered_logits(logprobs: Tensor, q: Tensor, v: Tensor, *, beta: float = 16.0) -> Tensor:
    """Return the policy's log-probabilities plus beta times the advantage of each token.

    Source: ILQL release; published beta lies between 4 and 32.

    Args:
        logprobs: [..., vocabulary], of the policy that samples; as the result.
        q: [2, ..., vocabulary], of both heads.
        v: [...].
        beta: zero returns the policy itself.
    """
    return logprobs + beta * (q.min(dim=0).values - v.unsqueeze(-1))


def imitation_weights(advantages: Tensor, *, beta: float, most: float = 100.0) -> Tensor:
    """Return how much each token of the data counts in imitation: `exp(beta * A)`, at most `most`.

    Source: advantage-weighted regression (Peng et al. 2019), as IQL extracts its policy
    (Kostrikov et al. 2021). The result is the best policy near the data's, the nearer the smaller
    beta is.

    Args:
        advantages: [...], of tokens that were sampled; as the result.
        beta: inverse temperature; zero weighs all tokens alike.
        most: limit of a weight.
    """
    return (beta * advantages).exp().clamp(max=most)


@dataclass(frozen=True, slots=True)
class IlqlPlan:
    """Settings of the critic's training."""

    gamma: float = 0.99  # per token
    tau: float = 0.7
    conservative: float = 0.01
    polyak: float = 0.005  # share by which the slow copy moves, once per update
    batch: int = 32  # trajectories per update
    learning_rate: float = 1e-4
    at_once: int = AT_ONCE  # trajectories per pass


@dataclass(slots=True)
class TokenChain:
    """Trajectories as one list of states, and the tokens sampled between them."""

    rows: list[Sequence[int]] = field(default_factory=list)
    positions: list[Sequence[int]] = field(default_factory=list)  # of the states in each row
    states: int = 0
    acting: list[int] = field(default_factory=list)  # the state that each token was sampled in
    following: list[int] = field(default_factory=list)  # and the state after it
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)

    def add(self, trajectory: Trajectory, replied: Sequence[Reply]) -> None:
        """Add one trajectory; the state after its last token counts only if it was cut off."""
        for reply, reward in zip(replied, trajectory.rewards, strict=True):
            count = reply.end - reply.start
            self.rows.append(reply.row[: reply.end])
            self.positions.append(range(reply.start - 1, reply.end))
            self.acting += range(self.states, self.states + count)
            self.following += range(self.states + 1, self.states + count + 1)
            self.actions += reply.row[reply.start : reply.end]
            self.rewards += [0.0] * (count - 1) + [reward]
            self.done += [False] * count
            self.states += count + 1
            # after a turn comes the state in which the next one begins
            self.following[-1] = self.states
        self.following[-1] = self.states - 1
        self.done[-1] = not trajectory.truncated


class TokenCritic(nn.Module):
    """A network with twin Q heads over the vocabulary and a V head."""

    def __init__(self, network: DecoderNetwork, seed: int) -> None:
        super().__init__()
        self.network = network
        size, generator = network.config.vocab_size, torch.Generator().manual_seed(seed)
        self.q = nn.ModuleList(head(network, size, generator) for _ in range(2))
        self.v = head(network, 1, generator)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Map states [N, width] to Q [2, N, vocabulary] and V [N]."""
        return torch.stack([q(states) for q in self.q]), self.v(states).squeeze(1)


class Ilql:
    """Offline Q-learning on tokens that stays inside the data, and steers a policy.

    Holds the critic, its slow copy and its optimiser.
    """

    def __init__(self, network: DecoderNetwork, plan: IlqlPlan | None = None, *, seed: int):
        """Make a critic on `network`, which it trains in place; `seed` also orders the data."""
        self.plan = plan or IlqlPlan()
        self.critic = TokenCritic(network, seed)
        self.target = slow_copy(self.critic, network.wide_dtype)
        self._optimiser = Optimiser(self.critic, self.plan.learning_rate, seed=seed)

    def learn(
        self, trajectories: Sequence[Trajectory], rows: Sequence[Row], updates: int
    ) -> Iterator[float]:
        """Run `updates` updates on minibatches of the data; yield the loss of each.

        Raises:
            InputError: rows of other trajectories.
        """
        data = list(zip(trajectories, replies(trajectories, rows), strict=True))
        for _ in range(updates):
            batch = self._optimiser.minibatch(data, self.plan.batch)
            loss = self._optimiser.step(self._losses(batch))
            polyak(self.target.parameters(), self.critic.parameters(), self.plan.polyak)
            yield loss

    @torch.no_grad()
    def values(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return Q [2, N, vocabulary] of the next token of each sequence, and V [N]."""
        return self.critic(last_states(self.critic.network, sequences))

    @torch.no_grad()
    def advantages(self, rows: Sequence[Row]) -> list[Tensor]:
        """Return `min(Q) - V` of the trained tokens of each row, [T_i] each, in units of return."""
        found: list[Tensor] = []
        for part in parts(rows, self.plan.at_once):
            places = [[i for i, on in enumerate(row.mask) if on] for row in part]
            before = [[i - 1 for i in of] for of in places]
            q, v = self.critic(states_at(self.critic.network, [row.tokens for row in part], before))
            tokens = [row.tokens[i] for row, of in zip(part, places, strict=True) for i in of]
            taken = _of_actions(q, torch.tensor(tokens, device=q.device))
            each = (taken.min(dim=0).values - v).split([len(of) for of in places])
            found += each
        return found

    def state(self) -> Parts:
        """Return everything that a resumed run needs."""
        return {**self._optimiser.state(), "target": weights_of(self.target)}

    def restore(self, parts: Parts) -> None:
        """Restore what `state` returned."""
        self._optimiser.restore(parts)
        self.target.load_state_dict(parts["target"])

    def _losses(self, batch: Sequence[tuple[Trajectory, list[Reply]]]) -> Iterator[Tensor]:
        tokens = sum(trajectory.tokens for trajectory, _ in batch)
        for part in parts(batch, self.plan.at_once):
            chain = TokenChain()
            for trajectory, replied in part:
                chain.add(trajectory, replied)
            yield self._loss(chain) * (len(chain.actions) / tokens)

    def _loss(self, chain: TokenChain) -> Tensor:
        device = self.critic.network.device
        acting = torch.tensor(chain.acting, device=device)
        actions = torch.tensor(chain.actions, device=device)
        done = torch.tensor(chain.done, device=device)
        states = states_at(self.critic.network, chain.rows, chain.positions)
        v = self.critic.v(states).squeeze(1)
        q, _ = self.critic(states.index_select(0, acting))
        with torch.no_grad():
            slow = states_at(self.target.network, chain.rows, chain.positions)
            target_q, _ = self.target(slow.index_select(0, acting))
        return ilql_loss(
            q,
            _of_actions(target_q, actions),
            v.index_select(0, acting),
            torch.where(done, 0.0, v[torch.tensor(chain.following, device=device)]),
            actions,
            torch.tensor(chain.rewards, device=device),
            gamma=self.plan.gamma,
            tau=self.plan.tau,
            conservative=self.plan.conservative,
        )


def _of_actions(q: Tensor, actions: Tensor) -> Tensor:
    """Select Q [2, M, vocabulary] of the actions [M]: [2, M]."""
    return q.gather(2, actions.expand(len(q), -1).unsqueeze(2)).squeeze(2)
