"""The stage that averages the weights of versions of the policy.

Source: model soups (Wortsman et al. 2022); AgentCPM averages checkpoints of an agent. The average
is of the optimiser's fp32 weights, each version with the same share.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from palaestra.core.errors import InputError, PalaestraError
from palaestra.training.policy_versions import Version, put_version, saved_version, write_weights
from palaestra.training.run_context import RunContext


@torch.no_grad()
def merge(context: RunContext, versions: list[str]) -> None:
    """Put the average of saved versions into the policy, and save it as the stage's version.

    Args:
        context: of the stage.
        versions: their records, all of which have a valid checkpoint.

    Raises:
        InputError: they have different clusters of calls.
    """
    started, record = time.monotonic(), context.record
    whole: dict[str, Tensor] = {}
    number, routers = 0, []
    for version in versions:
        saved = saved_version(context, version)
        if saved is None:
            raise PalaestraError(f"The checkpoint of '{version}' is gone; resume the run.")
        number = max(number, saved.state["version"] + 1)
        routers.append(saved.state.get("router"))
        for name, tensor in saved.weights.items():
            part = tensor.double() / len(versions)
            whole[name] = part if name not in whole else whole[name] + part
    if any(router != routers[0] for router in routers):
        raise InputError(
            f"The stage '{record}' averages versions whose adapters belong to different clusters "
            "of calls; let these versions begin with the same clusters."
        )
    average = {name: tensor.float() for name, tensor in whole.items()}
    router = {} if routers[0] is None else {"router": routers[0]}
    put_version(context, Version(average, {"version": number, **router}))
    write_weights(context, record, average)
    if not context.accounts.is_done(record):
        seconds = time.monotonic() - started
        context.accounts.finish_stage(record, seconds, sampled=0, prompt=0, trained=0)
