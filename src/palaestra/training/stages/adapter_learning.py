"""Learning by adapters within a stage: the weights rest, and take them up at its end.

Source: LoRA (Hu et al. 2021); PASTA (Boige et al. 2023) adapts pre-trained transformers of
trajectories by fewer than 10,000 weights. The version that the stage writes is one of all weights,
so later stages begin with it as with any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.weight_selection import adapters
from palaestra.learning.loop.learner import Learner
from palaestra.models.local.lora import add_lora, merge
from palaestra.training.ranks import memory_of_rank
from palaestra.training.run_context import RunContext

ADAPTER = "adapter/"  # documents: how many weights a stage trained


@contextmanager
def adapter_learner(context: RunContext, rank: int, learning_rate: float) -> Iterator[Learner]:
    """Yield a learner of new adapters; afterwards, add them to the policy's weights.

    Args:
        context: of the stage; its policy has no adapters, and no learner.
        rank: of the adapters, which are in all linear layers of the blocks.
        learning_rate: of their weights.
    """
    policy, part = context.policy, context.recipe.training
    every = sum(parameter.numel() for parameter in policy.network.parameters())
    add_lora(policy.network, rank, context.stage_seed)
    chosen = adapters(policy.network)
    count = sum(parameter.numel() for parameter in chosen.parameters.values())
    context.store.put(ADAPTER + context.record, {"rank": rank, "weights": count, "of": every})
    context.reporter.say(f"{context.record} trains adapters of {count:,} weights beside {every:,}")
    learner = Learner(
        policy,
        chosen,
        Optimisation(learning_rate, memory_of_rank(context.recipe), part.clip_norm),
        temperature=context.recipe.agent.temperature,
    )
    try:
        yield learner
    finally:
        learner.close()
        merge(policy.network)
        policy.engine.clear()
