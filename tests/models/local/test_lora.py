"""LoRA: adapters start neutral, only they are trained, and they can be merged."""

import copy
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained, spread
from palaestra.learning.compute.shared_prefix_attention import causal_attention
from palaestra.learning.compute.weight_selection import adapters
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import grpo, pg
from palaestra.models.local.checkpoint_format import read_network, write_network
from palaestra.models.local.lora import adapter_of, add_adapter, add_lora, merged
from tests.learning.made import gradients, grouped, learner_of, resident, same, sampled_rows
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


def test_metrics_by_role_are_parts_of_those_of_the_step():
    """Sums add up, and each role's are those of a step on its rows alone."""

    def update(rows):
        network = of_roles()
        learner = Learner(resident(network), of_all(network), Optimisation(1e-3))
        return learner.update(rows, pg)

    own = {
        "agent": [replace(row, roles={"agent"}) for row in sampled_rows(3)],
        "planner": [replace(row, roles={"planner"}) for row in sampled_rows(4, seed=1)],
    }
    both = update([row for rows in own.values() for row in rows])
    assert both.by_role.keys() == own.keys()
    for role, rows in own.items():
        alone, found = update(rows), both.by_role[role]
        for name, value in asdict(found).items():
            assert value == pytest.approx(getattr(alone, name), rel=1e-9), name
        assert alone.by_role.keys() == {role}
    for name in ("loss", "tokens"):
        parts = sum(getattr(part, name) for part in both.by_role.values())
        assert parts == pytest.approx(getattr(both, name))
    assert both.figures()["entropy/planner"] == both.by_role["planner"].entropy


def test_one_adapter_alone_has_no_metrics_by_role(learned):
    _, network = learned
    learner = Learner(resident(network), adapters(network), Optimisation(1e-2))
    assert not learner.update(sampled_rows(2), pg).by_role


def dense_logprobs(network, rows):
    """Return log-probabilities of the trained tokens, [M]; each row computed apart."""
    found = []
    for row in rows:
        tokens, on = torch.tensor(row.tokens), torch.tensor(row.mask[1:])
        hidden = network.run(network.embed(tokens), torch.arange(len(tokens)), attended_alone)
        every = network.logits(hidden[:-1]).log_softmax(dim=1)
        found.append(every.gather(1, tokens[1:, None]).squeeze(1)[on])
    return torch.cat(found)


def test_the_base_is_the_reference_at_no_memory_and_exact():
    """Its log-probabilities and the gradient of the KL to it are those of a dense computation."""
    rows = [replace(row, roles={"planner"}) for row in sampled_rows(4)] + sampled_rows(3, seed=5)
    network = of_roles()
    learner = Learner(
        resident(network),
        of_all(network),
        Optimisation(1e-3, clip_norm=1e9),
        reference="base",
    )
    kept = Learner(resident(of_roles()), of_all(of_roles()), Optimisation(1e-3))
    assert learner.state().keys() == kept.state().keys()  # no copy
    assert learner.budget.needs == kept.budget.needs
    found = learner.reference(rows)
    wanted = dense_logprobs(grouped().double(), rows)
    flat = torch.tensor([lp for row in found for lp in row], dtype=torch.float64)
    torch.testing.assert_close(flat, wanted.detach(), atol=1e-12, rtol=0.0)
    assert learner.logprobs(rows) != found  # the adapters change something

    held = [
        replace(row, lp_old=spread(row.mask, now), lp_ref=spread(row.mask, ref))
        for row, now, ref in zip(rows, learner.logprobs(rows), found, strict=True)
    ]
    twins = {name: alone(network, name) for name in ("default", "planner")}
    ours = gradients(learner, held, partial(grpo, beta=0.5, kl="k2"))
    for name, own in (("planner", held[:4]), ("default", held[4:])):
        lp = dense_logprobs(twins[name], own)
        reference = dense_logprobs(grouped().double(), own).detach()
        advantage = [a for r in own for a, on in zip(r.advantage, r.mask, strict=True) if on]
        weight = [w for r in own for w, on in zip(r.weight, r.mask, strict=True) if on]
        ratio = (lp - lp.detach()).exp()
        loss = (
            0.5 * (lp - reference).square() / 2
            - torch.tensor(advantage, dtype=torch.float64) * ratio
        )
        (loss * torch.tensor(weight, dtype=torch.float64)).sum().backward()
        theirs = {n: p.grad for n, p in adapters(twins[name]).parameters.items()}
        mine = {n.replace(name, "default"): g for n, g in ours.items() if n.endswith(f".{name}")}
        assert all(float(gradient.norm()) > 0 for gradient in theirs.values())
        assert same(mine, theirs, 1e-9)


def test_only_adapters_leave_a_base_for_a_reference():
    with pytest.raises(InputError, match="needs a network with adapters"):
        learner_of(grouped(), reference="base")


def test_roles_with_different_adapters_cannot_share_a_conversation():
    row = replace(sampled_rows(1)[0], roles={"agent", "planner"})
    network = of_roles()
    learner = Learner(resident(network), adapters(network), Optimisation(1e-3))
    with pytest.raises(InputError, match="the roles agent, planner, whose adapters differ"):
        learner.update([row], pg)
