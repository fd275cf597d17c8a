"""Memory: the plan is what a pass really takes, and nothing that cannot fit is begun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from palaestra.core.errors import InputError
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import (
    CPU_PASS_TOKENS,
    MemoryBudget,
    memory_of,
    needs_of,
)
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import adapters, everything, top_layers
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.lora import add_lora
from palaestra.models.local.network import DecoderNetwork
from tests.learning.made import gradients, learner_of, resident, same, sampled_rows, tiny


def network_of(
    width: int = 64, layers: int = 4, vocabulary: int = 50, dtype: torch.dtype = torch.float32
) -> DecoderNetwork:
    config = NetworkConfig(vocabulary, width, 3 * width, layers, 4, 2, 2048)
    network = DecoderNetwork(config).to(dtype)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return network


def selected(network, weights):
    match weights:
        case "full":
            return everything(network)
        case "top":
            return top_layers(network, 2)
    add_lora(network, 4, seed=0)
    return adapters(network)


def row_of(length, vocabulary=50):
    tokens = [i % vocabulary for i in range(length)]
    return Trained(tokens, [False, *[True] * (length - 1)])


def peak(work):
    """The most bytes that were allocated at once during it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weights", ["full", "top", "lora"])
def test_a_pass_takes_what_was_planned(weights, dtype):
    network = network_of(dtype=dtype)
    chosen = selected(network, weights)
    learner = Learner(resident(network), chosen, Optimisation(1e-3))
    learner.update([row_of(32)], pg)  # creates master weights and moments
    needs = learner.budget.needs
    gradients = 4 * sum(p.numel() for p in chosen.parameters.values())  # made again each time
    for tokens in (512, 1024):
        taken = peak(lambda n=tokens: learner.update([row_of(n)], pg))
        planned = needs.of(tokens) - needs.optimiser + gradients
        assert 0.5 * planned < taken < 1.05 * planned


def test_computing_blocks_again_takes_less_and_changes_no_gradient():
    rows = [row_of(400)]
    network = network_of(layers=8)
    memory = needs_of(network, everything(network).parameters).of(400, recompute=True)
    found = []
    for budget in (None, memory):
        torch.manual_seed(0)
        network = network_of(layers=8)
        optimisation = Optimisation(1e-3, budget, clip_norm=1e9)
        learner = Learner(resident(network), everything(network), optimisation)
        assert learner.budget.recomputes(400) == (budget is not None)
        learner.update([row_of(32)], pg, learning_rate=0.0)
        learner.restore({**learner.state(), "exp_avg": {}, "exp_avg_sq": {}, "step": {}})
        taken = peak(lambda learner=learner: learner.update(rows, pg))
        first = learner.state()["exp_avg"]
        found.append((taken, first))
    (much, plain), (little, again) = found
    assert little < 0.7 * much
    assert same(plain, again)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(31, 80), st.booleans())
def test_any_budget_in_which_the_longest_row_fits_gives_the_same_gradient(seed, tokens, recompute):
    rows = sampled_rows(5, seed=seed)
    plain = gradients(learner_of(tiny(layers=4)), rows, pg)
    network = tiny(layers=4)
    memory = needs_of(network, everything(network).parameters).of(tokens, recompute=recompute)
    optimisation = Optimisation(1e-3, memory, clip_norm=1e9)
    learner = Learner(resident(network), everything(network), optimisation)
    assert same(plain, gradients(learner, rows, pg))


def test_adapters_learn_the_same_whether_blocks_are_computed_again_or_not():
    found = []
    for recompute in (False, True):
        network = tiny(layers=4)
        chosen = selected(network, "lora")
        with torch.no_grad():
            for name, parameter in chosen.parameters.items():
                if "lora_B" in name:
                    torch.manual_seed(1)
                    parameter.normal_()
        memory = needs_of(network, chosen.parameters).of(31, recompute=recompute)
        optimisation = Optimisation(1e-3, memory, clip_norm=1e9)
        learner = Learner(resident(network), chosen, optimisation)
        found.append(gradients(learner, sampled_rows(5), pg))
    assert all(float(g.norm()) > 0 for g in found[0].values())
    assert same(*found)


# ── sizes of passes ──────────────────────────────────────────────────────────


def test_a_pass_is_as_large_as_memory_allows_but_no_larger_than_pays():
    network = network_of()
    parameters = everything(network).parameters
    needs = needs_of(network, parameters)
    for tokens in (1, 100, CPU_PASS_TOKENS):
        assert MemoryBudget(network, parameters, memory=needs.of(tokens)).tokens == tokens
    assert (
        MemoryBudget(network, parameters, memory=needs.of(2 * CPU_PASS_TOKENS)).tokens
        == CPU_PASS_TOKENS
    )


def test_by_default_learning_may_take_half_of_the_machine():
    network = network_of()
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_of(torch.device("cpu")) <= physical
    default = MemoryBudget(network, everything(network).parameters)
    assert default.memory == memory_of(torch.device("cpu")) // 2


def test_what_is_frozen_needs_no_memory():
    network = network_of(layers=8)
    full = needs_of(network, everything(network).parameters)
    chosen = top_layers(network, 2)
    top = needs_of(network, chosen.parameters, chosen.frozen_layers)
    assert top.optimiser < 0.3 * full.optimiser
    assert top.per_token < 0.6 * full.per_token


def test_weights_need_not_be_loaded_to_plan():
    with torch.device("meta"):
        absent = network_of()
    present = network_of()
    found = [needs_of(n, everything(n).parameters) for n in (absent, present)]
    assert found[0] == found[1]


def test_a_reference_policy_takes_the_bytes_of_a_copy_of_the_trained_weights():
    network = network_of()
    trained = everything(network).parameters
    alone, beside = (needs_of(network, trained, reference=r) for r in (False, True))
    assert beside.optimiser - alone.optimiser == sum(p.nbytes for p in trained.values())
    memory = alone.of(1, recompute=True)
    Learner(resident(network), everything(network), Optimisation(1e-3, memory)).close()
    with pytest.raises(InputError, match=r"training\.memory"):
        Learner(
            resident(network), everything(network), Optimisation(1e-3, memory), reference="start"
        )


# ── what does not fit ────────────────────────────────────────────────────────


def test_an_optimiser_that_does_not_fit_is_refused_at_once():
    network = network_of()
    with pytest.raises(InputError, match=r"at least .* [GM]B.*training\.memory"):
        Learner(resident(network), everything(network), Optimisation(1e-3, 1000))


def test_a_row_that_does_not_fit_is_refused_before_anything_moves():
    network = network_of()
    chosen = everything(network)
    memory = needs_of(network, chosen.parameters).of(100, recompute=True)
    learner = Learner(resident(network), chosen, Optimisation(1e-3, memory))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    with pytest.raises(InputError, match=r"a row of 200 tokens.*shorter"):
        learner.update([row_of(50), row_of(200)], pg)
    assert same(network.state_dict(), before, 0.0)
    assert learner.model.version == 0
    learner.update([row_of(50)], pg)


def test_the_trial_of_the_longest_row_leaves_no_trace():
    rows = sampled_rows(4)
    tried, fresh = learner_of(tiny()), learner_of(tiny())
    tried._fits(rows, [])
    assert tried.update(rows, pg) == fresh.update(rows, pg)
    assert same(tried.state()["weights"], fresh.state()["weights"], 0.0)


WITHOUT_MEMORY = """
import os, resource
from pathlib import Path
from tests.learning.compute.test_memory_budget import *

vocabulary = 100_000  # logits of 200 tokens take 80 MB
network = network_of(width=16, layers=1, vocabulary=vocabulary)
learner = Learner(resident(network), everything(network), Optimisation(1e-3))
row = row_of(200, vocabulary)
taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**24, hard))
try:
    learner.update([row], pg)
except InputError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
print(learner.model.version)
learner.update([row], pg)  # nothing of the failure stays
print(learner.model.version)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux's /proc")
def test_a_machine_without_memory_left_is_reported_in_a_sentence_before_step_one():
    """In a process of its own: this one keeps what other tests have freed."""
    command = [sys.executable, "-c", WITHOUT_MEMORY]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    message, before, after = ran.stdout.splitlines()
    assert "a row of 200 tokens" in message
    assert (int(before), int(after)) == (0, 1)
