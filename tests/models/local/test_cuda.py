"""The engine and the learner on a CUDA device, against the same network on the CPU."""

from __future__ import annotations

import asyncio

import pytest
import torch

from palaestra.core.model import Prompt, Sampling
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.devices import device, precision
from palaestra.models.local.engine import Engine, OnUpdate
from tests.learning.made import gradients, grouped, learner_of, resident, sampled_rows
from tests.models.plain import greedy

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: the GPU path is not covered here"
)

SHARED = [1, *range(3, 20)]
PROMPTS = [[5], [7, 8, 9], SHARED, [*SHARED, 5, 6], [*SHARED[:18], 3]]


def replies(network, sampling, **options):
    model = resident(network, **options)

    async def ask():
        asked = [Prompt((), tuple(p), sampling, i) for i, p in enumerate(PROMPTS)]
        return await asyncio.gather(*map(model.generate, asked))

    return asyncio.run(ask())


@pytest.mark.parametrize("slots", [8, 2])
def test_greedy_replies_are_those_of_the_plain_network(slots):
    here = grouped()
    found = replies(grouped().cuda(), Sampling(0.0, 12), slots=slots)
    for prompt, reply in zip(PROMPTS, found, strict=True):
        wanted = greedy(here, prompt, 12)
        end = wanted.index(0) + 1 if 0 in wanted else len(wanted)
        assert list(reply.tokens) == wanted[:end]


def test_sampled_replies_have_the_log_probabilities_of_the_processor():
    sampling = Sampling(0.7, 12)
    for there, here in zip(
        replies(grouped().cuda(), sampling), replies(grouped(), sampling), strict=True
    ):
        assert there.tokens == here.tokens
        assert there.logprobs == pytest.approx(here.logprobs, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_learner_has_the_engines_log_probabilities(dtype):
    rows = sampled_rows(6)
    learner = learner_of(grouped().to("cuda", dtype))
    here = learner_of(grouped())
    there, wanted = learner.logprobs(rows), here.logprobs(rows)
    gaps = [
        abs(ours - theirs)
        for row, plain in zip(there, wanted, strict=True)
        for ours, theirs in zip(row, plain, strict=True)
    ]
    if dtype is torch.float32:
        assert max(gaps) < 1e-4
    else:  # the weights are rounded too, and distributions are sharp
        assert sum(gaps) / len(gaps) < 0.05 and max(gaps) < 0.5


def test_gradients_are_those_of_the_processor():
    rows = sampled_rows(6)
    there = gradients(learner_of(grouped().cuda()), rows, pg)
    here = gradients(learner_of(grouped()), rows, pg)
    assert there.keys() == here.keys()
    for name, gradient in here.items():
        assert torch.allclose(there[name].cpu(), gradient, atol=1e-4), name


def test_after_an_update_the_engine_samples_from_the_new_weights():
    network = grouped().cuda()
    model = resident(network, on_update=OnUpdate.RECOMPUTE)
    prompt = Prompt((), tuple(SHARED), Sampling(1.0, 12), 0)
    asyncio.run(model.generate(prompt))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1)
    model.updated()
    after = asyncio.run(model.generate(prompt))
    with torch.no_grad():
        fresh = grouped()
        for parameter in fresh.parameters():
            parameter.mul_(1.1)
    wanted = asyncio.run(resident(fresh).generate(prompt))
    assert after.tokens == wanted.tokens and after.version == 1


@pytest.mark.parametrize("step_tokens", [7, 64])
def test_prompts_in_chunks_and_replies_in_one_step_are_those_of_the_plain_network(step_tokens):
    here, network = grouped(), grouped().cuda()
    engine = Engine(network, frozenset(), slots=3, context=100, step_tokens=step_tokens, block=8)
    prompts = [[*range(1, 24), *range(2, 20)], [5], [*range(1, 24), 3], [9, 8, 7], [4] * 30]
    requests = [engine.submit(p, Sampling(0.0, 20), i) for i, p in enumerate(prompts)]
    while engine.pending:
        engine.step()
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.completion == greedy(here, prompt, 20)


def test_weights_that_lie_elsewhere_are_followed():
    network = grouped().cuda()
    model = resident(network)
    prompt = Prompt((), tuple(SHARED), Sampling(1.0, 12), 0)
    before = asyncio.run(model.generate(prompt))
    for parameter in network.parameters():
        parameter.data = parameter.data.flip(0).contiguous()
    model.updated()
    after = asyncio.run(model.generate(prompt))
    fresh = grouped()
    for parameter in fresh.parameters():
        parameter.data = parameter.data.flip(0).contiguous()
    wanted = asyncio.run(resident(fresh).generate(prompt))
    assert after.tokens == wanted.tokens != before.tokens


def test_the_device_and_its_number_format_are_chosen():
    assert device("auto").type == "cuda" and device("cpu").type == "cpu"
    assert precision("auto", device("cuda")) in (torch.bfloat16, torch.float32)
