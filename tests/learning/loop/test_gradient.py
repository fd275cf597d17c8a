"""The whole path in fp64: packed, shared and cut up, against one dense pass per model call."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.core.graph import Call
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.critics.value_head import Critic
from palaestra.learning.data.rows import Row, rows_of
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.learning.losses.policy_loss import gspo, loop, pg, ppo
from tests.learning.dense import Dense
from tests.learning.made import call, episode, gradients, grouped, learner_of, resident

SYSTEM = [1, 3, 4, 5]
BRANCHING = [
    call(0, None, [*SYSTEM, 6, 7], [8, 9, 0]),
    call(1, 0, [10, 11], [12, 0]),
    call(2, None, [2, 13, 14], [15, 16, 17, 0]),  # a sub-agent: a conversation of its own
    call(3, 2, [9], [6, 0]),
    call(4, 1, [6, 3], [5, 5, 0]),  # the agent goes on with the sub-agent's answer
    call(5, 0, [19], [20, 21, 0]),  # a context edit: what followed call 0 was replaced
    call(6, None, [*SYSTEM, 22, 20], [8, 0]),  # a summary in place of the history
    call(7, 6, [4], [9, 9, 0]),
    call(8, None, [3, 3], [4, 0], policy="judge"),
]
STRAIGHT = [
    call(0, None, [*SYSTEM, 6, 7], [8, 9, 0]),  # begins as the other rollout does
    call(1, 0, [10, 11], [23, 0]),
]
EPSILON, TEMPERATURE, BETA, COEFFICIENT, CLIP = 0.3, 0.7, 0.05, 0.6, 0.2
Turn = tuple[Key, int]


@dataclass
class Batch:
    """A branching rollout and a straight one, with figures for each sampled token."""

    calls: dict[Turn, Call]  # those of the policy
    contexts: dict[Turn, list[int]]  # the tokens before each reply
    rows: list[Row]
    advantage: dict[Turn, float]
    target: dict[Turn, Tensor]  # of the critic; NaN for some tokens
    old: dict[Turn, Tensor]  # the critic's values when the targets were made


def batch(dense: Dense, *, per_rollout: bool) -> Batch:
    """Recorded log-probabilities are near the present ones, so that few tokens are clipped."""
    g = torch.Generator().manual_seed(1)
    made = Batch({}, {}, [], {}, {}, {})
    for member, calls in enumerate((BRANCHING, STRAIGHT)):
        key = Key("rl/1", 0, member)
        whole: list[list[int]] = []
        recorded = []
        common = float(torch.randn((), generator=g))
        for c in calls:
            before = [] if c.parent is None else whole[c.parent]
            context = [*before, *c.prompt]
            whole.append([*context, *c.completion])
            n = len(c.completion)
            lp, _, _ = dense.reply(context, c.completion, TEMPERATURE)
            noise = 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
            c = replace(c, logprobs=tuple((lp.detach() + noise).tolist()))
            recorded.append(c)
            if c.policy != "policy":
                continue
            turn = (key, c.index)
            made.calls[turn], made.contexts[turn] = c, context
            own = float(torch.randn((), generator=g))
            made.advantage[turn] = common if per_rollout else own
            made.target[turn] = torch.randn(n, generator=g, dtype=torch.float64)
            made.target[turn][torch.rand(n, generator=g) < 0.3] = float("nan")
            made.old[turn] = torch.randn(n, generator=g, dtype=torch.float64)
        made.rows += rows_of(episode(recorded, member=member), "policy")
    return made


def trained(made: Batch, aggregation: Aggregation) -> list[Trained]:
    """What the learner gets."""
    weights = token_weights(made.rows, aggregation)
    found = []
    for row, weight in zip(made.rows, weights, strict=True):
        targets = {turn: iter(values.tolist()) for turn, values in made.target.items()}
        old = {turn: iter(values.tolist()) for turn, values in made.old.items()}
        turns = [(row.key, c) for c in row.calls]
        on = list(zip(turns, row.mask, strict=True))
        found.append(
            Trained(
                row.tokens,
                row.mask,
                row.logprobs,
                [made.advantage[turn] if m else 0.0 for turn, m in on],
                weight,
                turn=row.calls,
                rollout=row.key,
                value_target=[next(targets[turn]) if m else 0.0 for turn, m in on],
                value_old=[next(old[turn]) if m else 0.0 for turn, m in on],
            )
        )
    return found


def clipped(rho: Tensor, advantage: float, low: float, high: float) -> Tensor:
    return torch.maximum(-advantage * rho, -advantage * rho.clamp(low, high))


def token_objective(made: Batch, lps: dict[Turn, Tensor]) -> Tensor:
    """PPO, mean over all tokens; ratios are too near 1 for the dual clip."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for turn, lp in lps.items():
        rho = (lp - torch.tensor(made.calls[turn].logprobs, dtype=torch.float64)).exp()
        total = total + clipped(rho, made.advantage[turn], 0.8, 1.2).sum()
        count += len(lp)
    return total / count


def turn_objective(made: Batch, lps: dict[Turn, Tensor]) -> Tensor:
    """The geometric mean of a turn's ratios, clipped; mean over turns, then rollouts."""
    total = torch.zeros((), dtype=torch.float64)
    for (key, index), lp in lps.items():
        old = torch.tensor(made.calls[key, index].logprobs, dtype=torch.float64)
        rho = (lp - old).mean().exp()
        turns = sum(k == key for k, _ in lps)
        total = total + clipped(rho, made.advantage[key, index], 0.8, 1.2) / turns
    return total / len({key for key, _ in lps})


def rollout_objective(made: Batch, lps: dict[Turn, Tensor]) -> Tensor:
    """The product of a rollout's ratios, bounded alike in logarithms; mean over rollouts."""
    total = torch.zeros((), dtype=torch.float64)
    keys = sorted({key for key, _ in lps}, key=str)
    for key in keys:
        logs = [
            lp - torch.tensor(made.calls[turn].logprobs, dtype=torch.float64)
            for turn, lp in lps.items()
            if turn[0] == key
        ]
        (advantage,) = {made.advantage[turn] for turn in lps if turn[0] == key}
        total = total + clipped(
            torch.cat(logs).sum().exp(), advantage, 1 / (1 + EPSILON), 1 + EPSILON
        )
    return total / len(keys)


def entropy_objective(nats: dict[Turn, Tensor]) -> Tensor:
    return -BETA * torch.cat(list(nats.values())).mean()


def value_objective(made: Batch, states: dict[Turn, Tensor], head: tuple[Tensor, Tensor]) -> Tensor:
    weight, bias = head
    errors = []
    for turn, state in states.items():
        values = state @ weight.T.squeeze(1) + bias
        for v, target, old in zip(values, made.target[turn], made.old[turn], strict=True):
            if not torch.isnan(target):
                near = torch.minimum(torch.maximum(v, old - CLIP), old + CLIP)
                errors.append(torch.maximum((v - target) ** 2, (near - target) ** 2))
    return COEFFICIENT * 0.5 * torch.stack(errors).mean()


CASES = {
    "token": (
        partial(ppo, low=0.2, high=0.2),
        Aggregation.TOKEN_MEAN,
        token_objective,
    ),
    "turn": (
        partial(gspo, unit="turn", low=0.2, high=0.2),
        Aggregation.TURN_MEAN,
        turn_objective,
    ),
    "rollout": (
        partial(loop, unit="rollout", epsilon=EPSILON),
        Aggregation.ROLLOUT_TOKEN_MEAN,
        rollout_objective,
    ),
}


@pytest.mark.parametrize("micro_tokens", [20, 10_000])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("unit", CASES)
def test_a_branching_episode_has_the_gradient_of_its_calls_run_one_by_one(unit, tied, micro_tokens):
    loss, aggregation, objective = CASES[unit]
    network = grouped(tied=tied).double()
    dense = Dense(network)
    made = batch(dense, per_rollout=unit == "rollout")

    learner = learner_of(
        network,
        micro_tokens=micro_tokens,
        temperature=TEMPERATURE,
        critic=Critic(1e-3, COEFFICIENT, CLIP, shared=True),
    )
    state = copy.deepcopy(learner.state())  # with a head that has learned something
    g = torch.Generator().manual_seed(2)
    names = ("value_head.linear.weight", "value_head.linear.bias")
    for name in names:
        state["weights"][name].normal_(generator=g)
    learner.restore(state)
    head = [state["weights"][name].clone().requires_grad_() for name in names]

    mean = 1 / sum(row.trained for row in made.rows)
    ours = gradients(
        learner,
        trained(made, aggregation),
        loss,
        entropy=lambda nats, tokens, weight: -BETA * mean * nats.sum(),
        whole_rollouts=unit == "rollout",
    )

    lps, nats, states = {}, {}, {}
    for turn, made_call in made.calls.items():
        lps[turn], nats[turn], states[turn] = dense.reply(
            made.contexts[turn], made_call.completion, TEMPERATURE
        )
    total = objective(made, lps) + entropy_objective(nats)
    (total + value_objective(made, states, (head[0], head[1]))).backward()

    theirs = {name: weight.grad for name, weight in dense.weights.items()}
    theirs |= dict(zip(names, (h.grad for h in head), strict=True))
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        assert float(gradient.norm()) > 0, name
        assert float((ours[name] - gradient).norm()) < 1e-9 * float(gradient.norm()), name


def test_each_part_of_the_dense_objective_counts():
    """The comparison would notice a missing part: each moves the trunk on its own."""
    network = grouped().double()
    dense = Dense(network)
    made = batch(dense, per_rollout=True)
    lps, nats, states = {}, {}, {}
    for turn, made_call in made.calls.items():
        lps[turn], nats[turn], states[turn] = dense.reply(
            made.contexts[turn], made_call.completion, TEMPERATURE
        )
    head = torch.full((1, 32), 0.1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    parts = [
        token_objective(made, lps),
        turn_objective(made, lps),
        rollout_objective(made, lps),
        entropy_objective(nats),
        value_objective(made, states, head),
    ]
    for part in parts:
        (gradient,) = torch.autograd.grad(part, dense.weights["norm"], retain_graph=True)
        assert float(gradient.norm()) > 1e-4


@settings(max_examples=10)
@given(st.data())
def test_members_of_a_group_have_the_gradient_of_each_run_alone(data):
    """Whatever they share, in however many micro-batches, blocks computed again or not."""
    token = st.integers(1, 3)  # few, so that members go on alike for a while
    start = data.draw(st.lists(token, min_size=1, max_size=6))
    members = data.draw(
        st.lists(
            st.lists(st.tuples(token, st.booleans()), min_size=1, max_size=12),
            min_size=2,
            max_size=6,
        )
    )
    rows = []
    for member, tail in enumerate(members):
        sampled = [on for _, on in tail[:-1]] + [True]
        rows.append(
            Trained(
                [*start, *(t for t, _ in tail)],
                [False] * len(start) + sampled,
                advantage=[0.3 * member - 0.5] * (len(start) + len(tail)),
            )
        )
    longest, network = max(len(row.tokens) for row in rows), grouped().double()
    dense = Dense(network)
    chosen = everything(network)
    most = data.draw(st.integers(longest, 80))
    memory = needs_of(network, chosen.parameters).of(most, recompute=data.draw(st.booleans()))
    learner = Learner(resident(network), chosen, Optimisation(1e-3, memory, clip_norm=1e9))
    ours = gradients(
        learner, rows, pg, entropy=lambda nats, tokens, weight: -BETA * (nats * weight).sum()
    )
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        lp, nats, _ = dense.reply(row.tokens[:1], row.tokens[1:])
        on = torch.tensor(row.mask[1:])
        advantage = torch.tensor(row.advantage[1:], dtype=torch.float64)
        total = total - ((advantage * lp + BETA * nats) * on).sum()
    total.backward()
    for name, weight in dense.weights.items():
        scale = max(float(weight.grad.norm()), 1e-3)
        assert float((ours[name] - weight.grad).norm()) < 1e-9 * scale, name
