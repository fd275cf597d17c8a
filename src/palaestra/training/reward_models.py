"""Reward models that stages of this run, or of another one, wrote, from their checkpoints."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError, PalaestraError, UnknownName
from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.critics.reward_model import RewardModel
from palaestra.models.registry import REVISIONS
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.learned_model_sections import ModelOfRun
from palaestra.training.run_context import VOCABULARY, RunContext
from palaestra.training.stage_sections import Reward

KIND = "kind"  # in the state of a reward model's checkpoint


def saved_model(context: RunContext, record: str, part: Reward | None = None) -> RewardModel:
    """Return the reward model that a stage has written.

    Args:
        context: of the run.
        record: of the stage.
        part: the stage, by whose settings the model goes on learning; None: it does not.

    Raises:
        PalaestraError: its checkpoint is gone, or damaged.
    """
    parts = saved_parts(context, record)
    if parts is None:
        raise PalaestraError(
            f"The reward model of '{record}' is gone from the run's checkpoints; begin a new run."
        )
    network, seed = copy.deepcopy(context.policy.network), context.stage_seed
    if part is None:
        model = RewardModel(network, seed=seed)
    else:
        rate, batch = part.learning_rate, part.batch
        model = RewardModel(network, seed=seed, learning_rate=rate, batch=batch)
    model.restore(parts)
    return model


def saved_parts(context: RunContext, record: str) -> dict[str, Any] | None:
    for name in context.checkpoints(record):
        try:
            return checkpoint.load(context.run.checkpoints, name).tensors
        except checkpoint.CorruptCheckpoint as error:
            context.reporter.say(str(error))
    return None


# ── of another run ───────────────────────────────────────────────────────────


def check_model_of_run(named: ModelOfRun, model: str) -> None:
    """Raise InputError unless the other run has such a reward model, of the same base model.

    Args:
        named: the reward model.
        model: the name of this run's model.
    """
    with RunFolder.read(Path(named.run)) as run:
        _checkpoint_of(run, named)
        theirs = dict(run.database.get("recipe") or {}).get("model") or {}
        if theirs.get("name") != model:
            raise _other_tokens(
                named, f"it began as '{theirs.get('name')}', the policy as '{model}'"
            )


def model_of_run(context: RunContext, named: ModelOfRun) -> RewardModel:
    """Return the reward model of another run.

    Raises:
        InputError: there is none, or it reads other tokens than the policy, or is of another size.
        CorruptCheckpoint: its files were changed.
    """
    with RunFolder.read(Path(named.run)) as run:
        if context.recipe.model.name == "tiny":
            if _vocabulary(run.path) != _vocabulary(context.run.path):
                raise _other_tokens(named, "its vocabulary was learned from other tasks' texts")
        elif run.database.get(REVISIONS) != context.store.get(REVISIONS):
            raise _other_tokens(named, "it began as another revision of the model")
        parts = checkpoint.load(run.checkpoints, _checkpoint_of(run, named)).tensors
    model = RewardModel(copy.deepcopy(context.policy.network), seed=0)
    if _sizes(parts) != _sizes(model.state()):
        raise InputError(
            f"The reward model '{named.stage}' of '{named.run}' is a network of another size than "
            "the policy; name a run with the same model."
        )
    model.restore(parts)
    return model


def _checkpoint_of(run: RunFolder, named: ModelOfRun) -> str:
    """Return the name of the reward model's checkpoint: that of the last round."""
    models = [n for n in checkpoint.names(run.checkpoints) if _is_model(run.checkpoints, n)]
    own = re.compile(re.escape(named.stage) + r"(?:-(\d+))*")
    found = {
        n: [int(part) for part in re.findall(r"-(\d+)", n[len(named.stage) :])]
        for n in models
        if own.fullmatch(n)
    }
    if not found:
        raise UnknownName(f"reward model in '{named.run}'", named.stage, models)
    return max(found, key=lambda name: found[name])


def _is_model(folder: Path, name: str) -> bool:
    return KIND in checkpoint.check(folder, name, verify=False)["state"]


def _vocabulary(run: Path) -> bytes | None:
    file = run / VOCABULARY / "tokenizer.json"
    return file.read_bytes() if file.is_file() else None


def _sizes(parts: Parts) -> Mapping[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in parts["weights"].items()}


def _other_tokens(named: ModelOfRun, why: str) -> InputError:
    return InputError(
        f"The reward model '{named.stage}' of '{named.run}' reads other tokens than the policy: "
        f"{why}; learn one in this run, or name a run of the same model, environment and seed."
    )
