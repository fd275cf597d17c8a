"""LoRA: adapters start neutral, only they are trained, and they can be merged."""

import copy
from dataclasses import replace

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.shared_prefix_attention import causal_attention
from palaestra.learning.compute.weight_selection import adapters
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.lora import adapter_of, add_adapter, add_lora, merged
from tests.learning.made import gradients, grouped, resident, same, sampled_rows
from tests.models.local.test_network import ROWS, logits


@pytest.fixture(scope="module")
def learned():
    """Return a network before and after some training of its adapters."""
    network = grouped()
    add_lora(network, 4, seed=1)
    before = copy.deepcopy(network.state_dict())
    learner = Learner(resident(network), adapters(network), Optimisation(1e-2))
    for _ in range(3):
        learner.update(sampled_rows(4), pg)
    return before, network


@torch.no_grad()
def all_logits(network):
    return torch.cat(logits(network, ROWS))


def test_fresh_adapters_change_no_output():
    network = grouped()
    before = all_logits(network)
    add_lora(network, 4, seed=1)
    assert torch.equal(all_logits(network), before)


def test_equal_seeds_give_equal_adapters_and_touch_no_other_randomness():
    a, b = grouped(), grouped()
    torch.manual_seed(0)
    add_lora(a, 4, seed=1)
    sampled = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(1), sampled)
    add_lora(b, 4, seed=1)
    assert same(a.state_dict(), b.state_dict(), 0.0)


def test_only_adapters_learn(learned):
    before, network = learned
    moved = {n for n, t in network.state_dict().items() if not torch.equal(t, before[n])}
    assert moved
    assert moved == {n for n in before if "lora_" in n}


def test_a_merged_copy_says_the_same_without_adapters(learned, tmp_path):
    _, network = learned
    whole = merged(network)
    assert not torch.allclose(all_logits(network), all_logits(grouped()), atol=1e-2)
    assert torch.allclose(all_logits(whole), all_logits(network), atol=1e-4)
    assert whole.state_dict().keys() == grouped().state_dict().keys()
    assert any("lora_" in name for name in network.state_dict())  # the original keeps them
    write_network(whole, tmp_path)
    assert torch.equal(all_logits(read_network(tmp_path, torch.float32)), all_logits(whole))


def test_a_network_without_adapters_is_its_own_merger():
    network = grouped()
    assert merged(network) is network


def test_adapters_take_the_precision_of_the_network():
    network = grouped().to(torch.bfloat16)
    add_lora(network, 4, seed=1)
    assert {p.dtype for p in network.parameters()} == {torch.bfloat16}


def attended_alone(layer, q, k, v, scores):
    return causal_attention(q[None], k[None], v[None])[0]


@pytest.mark.parametrize("most", [1, 60, 10_000])
def test_adapters_learn_from_shared_rows_as_from_each_alone(most):
    start = sampled_rows(1, seed=5)[0].tokens[:3]
    rows = [
        Trained(
            [*start, *row.tokens],
            [False] * 3 + row.mask,
            advantage=[0.0] * 3 + row.advantage,
        )
        for row in sampled_rows(4)
    ]
    network = grouped().double()
    add_lora(network, 4, seed=1)
    chosen = adapters(network)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in chosen.parameters.items():
            if "lora_B" in name:  # else the other half would have no gradient
                parameter.normal_(std=0.1, generator=generator)
    twin = copy.deepcopy(network)
    learner = Learner(resident(network), chosen, Optimisation(1e-3, clip_norm=1e9))
    learner.budget.tokens = most
    ours = gradients(learner, rows, pg)

    for row in rows:
        tokens, on = torch.tensor(row.tokens), torch.tensor(row.mask[1:])
        hidden = twin.run(twin.embed(tokens), torch.arange(len(tokens)), attended_alone)
        every = twin.logits(hidden[:-1]).log_softmax(dim=1)
        lp = every.gather(1, tokens[1:, None]).squeeze(1)
        advantage = torch.tensor(row.advantage[1:], dtype=torch.float64)
        (-advantage * lp * on).sum().backward()
    theirs = {name: p.grad for name, p in adapters(twin).parameters.items()}
    assert all(float(gradient.norm()) > 0 for gradient in theirs.values())
    assert same(ours, theirs, 1e-9)


# ── roles with adapters of their own ─────────────────────────────────────────


def of_roles():
    """Return a network with the agent's and a planner's adapter, both of random numbers."""
    network = grouped().double()
    add_lora(network, 4, seed=1)
    add_lora(network, 4, seed=2, name="planner")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=generator)
    network.adapters.by_role = {"agent": "default", "planner": "planner"}
    return network


def alone(network, name):
    """Return the base with one of the network's adapters as its only one."""
    single = grouped().double()
    add_adapter(single, "default", adapter_of(network, name))
    return single


def of_all(network):
    """Select all adapters of a network."""
    return adapters(network, tuple(network.adapters.by_role.values()) or ("default",))


@pytest.mark.parametrize("most", [1, 60, 10_000])
def test_each_role_trains_its_adapter_as_if_it_were_the_only_one(most):
    rows = sampled_rows(6, seed=7)
    rows += [replace(row, roles={"planner"}) for row in rows[:3]]  # the same tokens, other adapters
    rows[3:5] = [replace(row, roles={"agent"}) for row in rows[3:5]]
    network = of_roles()

    def found(network, rows):
        learner = Learner(resident(network), of_all(network), Optimisation(1e-3, clip_norm=1e9))
        learner.budget.tokens = most
        return learner.logprobs(rows), gradients(learner, rows, pg)

    twins = {"default": alone(network, "default"), "planner": alone(network, "planner")}
    logprobs, ours = found(network, rows)
    own = {"default": rows[:6], "planner": rows[6:]}
    expected = {name: found(twins[name], own[name]) for name in own}
    wanted = [*expected["default"][0], *expected["planner"][0]]
    for mine, theirs in zip(logprobs, wanted, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-12)
    for name, (_, wanted) in expected.items():
        mine = {n.replace(name, "default"): g for n, g in ours.items() if n.endswith(f".{name}")}
        assert all(float(gradient.norm()) > 0 for gradient in wanted.values())
        assert same(mine, wanted, 1e-9)


def test_roles_with_different_adapters_cannot_share_a_conversation():
    row = replace(sampled_rows(1)[0], roles={"agent", "planner"})
    network = of_roles()
    learner = Learner(resident(network), adapters(network), Optimisation(1e-3))
    with pytest.raises(InputError, match="the roles agent, planner, whose adapters differ"):
        learner.update([row], pg)
