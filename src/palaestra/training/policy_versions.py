"""Versions of the policy: the trained weights as stages left them, saved under the stages' records.

A version is the checkpoint of the stage that wrote it. Only its weights are read here; learners
read the rest (see `RunContext.resume`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from palaestra.models.local.rounding import round_into
from palaestra.store import checkpoint
from palaestra.training.policy_building import put_state, selection, state_of
from palaestra.training.run_context import RunContext

WEIGHTS = "weights"  # the part of a checkpoint


@dataclass(frozen=True, slots=True)
class Version:
    """The trained weights of a saved version, and its state (see `state_of`)."""

    weights: Mapping[str, Tensor]
    state: Mapping[str, Any]


def saved_version(context: RunContext, version: str) -> Version | None:
    """Return what was saved of a version; None if nothing valid was."""
    for name in reversed(context.checkpoints(version)):
        try:
            found = checkpoint.load(context.run.checkpoints, name)
            return Version(found.tensors[WEIGHTS], found.state)
        except checkpoint.CorruptCheckpoint as error:
            context.reporter.say(str(error))
    return None


def is_saved(context: RunContext, version: str) -> bool:
    """Return whether a version has a valid checkpoint."""
    for name in context.checkpoints(version):
        try:
            checkpoint.check(context.run.checkpoints, name)
        except checkpoint.CorruptCheckpoint:
            continue
        return True
    return False


def write_weights(context: RunContext, version: str, weights: Mapping[str, Tensor]) -> None:
    """Save trained weights as a version, without an optimiser's state."""
    parts: dict[str, Mapping[str, Tensor]] = {"exp_avg": {}, "exp_avg_sq": {}, "step": {}}
    state = state_of(context.policy)
    context.store.sync()  # a checkpoint is never ahead of the record
    checkpoint.save(context.run.checkpoints, version, {WEIGHTS: weights, **parts}, state)


def save_present(context: RunContext, version: str) -> None:
    """Save the policy's trained weights as they are."""
    chosen = selection(context.policy, context.recipe).parameters
    write_weights(context, version, {name: p.detach() for name, p in chosen.items()})


@torch.no_grad()
def put_version(context: RunContext, version: Version) -> None:
    """Make trained weights, in any precision, those of the policy."""
    for name, parameter in selection(context.policy, context.recipe).parameters.items():
        tensor = version.weights[name].to(parameter.device)
        if tensor.dtype == parameter.dtype:
            parameter.copy_(tensor)
        else:
            round_into(parameter, tensor)
    context.policy.engine.clear()
    put_state(context.policy, version.state)


def forget_versions(context: RunContext, needed: Collection[str]) -> None:
    """Remove the checkpoints of all versions but those that are needed."""
    kept = {name for version in needed for name in context.checkpoints(version)}
    for name in checkpoint.names(context.run.checkpoints):
        if name not in kept:
            checkpoint.remove(context.run.checkpoints, name)
