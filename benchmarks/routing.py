"""Prompt tokens that engines find in their caches: 1, 2 and 4 of them, routed and at random.

python benchmarks/routing.py [--json]

Groups of four sessions play the same BabyAI tasks with all of their history as the prompt. With one
engine every earlier token is in its cache. Caches are large enough for all sessions, so what is
lost is lost by routing alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ray
from engine_policy import Policy, acting

from palaestra.agents.registry import make_agent
from palaestra.cluster.router import Router
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Key
from palaestra.core.model import Generation, Model, Prompt, Sampling
from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout

ENVIRONMENT = "babyai/GoToObjS6"
GROUPS, MEMBERS, TURNS, SESSIONS = 32, 4, 12, 32


def route_at_random(router: Router) -> None:
    """Let a router send each call to any engine."""
    rng = random.Random(0)
    router._home = lambda session, group: rng.choice(sorted(router._versions))


class Counting(Model):
    """A model whose prompt tokens are counted."""

    def __init__(self, inner: Model) -> None:
        self.name, self.renderer, self.native_tools = inner.name, inner.renderer, inner.native_tools
        self._inner = inner
        self.prompted = self.computed = 0

    async def generate(self, prompt: Prompt) -> Generation:
        reply = await self._inner.generate(prompt)
        self.prompted += reply.prompt_tokens
        self.computed += reply.computed_tokens
        return reply


async def here(id: str) -> AsyncEnvironment:
    return LocalEnvironment(make(id))


async def measure(policy: Policy, count: int, *, at_random: bool) -> tuple[float, int]:
    """Return the share of prompt tokens that were cached, and how many there were."""
    jobs = [
        Job(Key("x", group, member), task)
        for group, task in enumerate(tasks(ENVIRONMENT).take(Split.TRAIN, GROUPS))
        for member in range(MEMBERS)
    ]
    async with acting(policy, count, SESSIONS) as (engines, model):
        if at_random:
            route_at_random(engines.router)
        counting = Counting(model)
        await Rollout(
            make_agent("direct"),
            here,
            {"agent": counting},
            budget=Budget(turns=TURNS),
            sampling=Sampling(1.0, 8),
            concurrency=SESSIONS,
        ).run(jobs)
    return 1 - counting.computed / counting.prompted, counting.prompted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        policy = Policy(Path(folder))
        for count, at_random in ((1, False), (2, False), (4, False), (2, True), (4, True)):
            share, prompted = asyncio.run(measure(policy, count, at_random=at_random))
            rows.append((count, at_random, share, prompted))
    ray.shutdown()
    alone = rows[0][2]
    if options.json:
        keys = ("engines", "at_random", "cached", "prompt_tokens")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return
    for count, at_random, share, prompted in rows:
        name = f"{count} engines{', at random' if at_random else ''}"
        print(f"{name:22} {share:.3f} of {prompted} cached, {share / alone:.3f} of one engine's")


if __name__ == "__main__":
    main()
