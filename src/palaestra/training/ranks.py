"""Learner ranks of a training run: rank 0 runs the recipe, the others learn with it.

Each rank builds the policy from the recipe that rank 0 sends, so other machines need the model (in
their cache, or to be downloaded) and nothing of the run's folder.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from palaestra.core.errors import InputError, PalaestraError, RankLost
from palaestra.environments.registry import spec
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import SHARE, memory_of
from palaestra.learning.compute.shards import Sharding
from palaestra.learning.critics.privileged_head import PrivilegedLoss
from palaestra.learning.critics.value_head import Critic
from palaestra.learning.loop.following import serve
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner, Reference
from palaestra.learning.methods.algorithms import Method
from palaestra.learning.methods.component import Need
from palaestra.learning.parallel import Ranks, join
from palaestra.models.local.devices import device
from palaestra.models.local.resident import ResidentModel
from palaestra.runtime.machine import LaunchedRank, launched_rank
from palaestra.training.method import chosen, critic_of
from palaestra.training.policy_building import (
    build_policy,
    checked_origin,
    prepare_torch,
    selection,
)
from palaestra.training.recipe import Recipe, read_recorded

GRACE = 20.0  # seconds in which rank 0 ends the others, after all were told to stop


class Team:
    """The ranks that a run learns with: those that are there, and how lost ones are replaced."""

    def __init__(self, ranks: Ranks, replace: Callable[[RankLost], Ranks] | None = None) -> None:
        """Begin with joined ranks, of which this process is rank 0.

        Args:
            ranks: the first ones.
            replace: returns new ones when some were lost, or raises; None: the run ends then.
        """
        self.ranks, self._replace = ranks, replace

    def leader(self, description: object, *, ordered: bool) -> Leader:
        """Return a leader of the ranks that are there now; see `Leader`."""
        replace = None if self._replace is None else self._replaced
        return Leader(self.ranks, description, ordered=ordered, replace=replace)

    def _replaced(self, lost: RankLost) -> Ranks:
        assert self._replace is not None
        self.ranks = self._replace(lost)
        return self.ranks


@dataclass(frozen=True, slots=True)
class Description:
    """All that another rank needs to make the learner of rank 0."""

    recipe: Mapping[str, Any]  # as in a run's record
    learning_rate: float
    for_rl: bool
    roles: tuple[str, ...]  # whose adapters learn
    revisions: Mapping[str, str | None]  # of the models, see `checked_origin`
    vocabulary: Mapping[str, bytes]  # files by name, where the recipe's model is made in the run
    reference: Reference | None  # of stages other than RL


def described(
    recipe: Recipe,
    learning_rate: float,
    for_rl: bool,
    roles: tuple[str, ...],
    revisions: Mapping[str, str | None],
    vocabulary: Path,
    reference: Reference | None = None,
) -> Description:
    """Describe the learner that `make_learner` makes; `vocabulary` is a folder of the run."""
    files = sorted(vocabulary.iterdir()) if recipe.model.name == "tiny" else []
    return Description(
        recipe.model_dump(mode="json"),
        learning_rate,
        for_rl,
        roles,
        revisions,
        {file.name: file.read_bytes() for file in files},
        reference,
    )


def make_learner(
    recipe: Recipe,
    policy: ResidentModel,
    learning_rate: float,
    *,
    for_rl: bool = False,
    reference: Reference | None = None,
    roles: Sequence[str] | None = None,
    ranks: Ranks | None = None,
) -> Learner:
    """Create the policy's learner; for RL, with the critic and reference that it needs.

    Args:
        recipe: of the stage.
        policy: learns.
        learning_rate: of the policy.
        for_rl: whether it learns by RL.
        reference: of stages other than RL; None: none.
        roles: with LoRA, those whose adapters learn; None: all.
        ranks: with which it learns; None: alone.
    """
    part, critic, method = recipe.training, None, Method(chosen(recipe.rl))
    settings = critic_of(recipe.rl, method) if for_rl else None
    if settings is not None and settings.kind == "head":
        critic = Critic(settings.learning_rate, settings.coefficient or 0.5, shared=settings.shared)
    return Learner(
        policy,
        selection(policy, recipe, roles),
        Optimisation(learning_rate, memory_of_rank(recipe), part.clip_norm),
        temperature=recipe.agent.temperature,
        critic=critic,
        reference=reference_of(recipe, method) if for_rl else reference,
        families=recipe.rl.families if for_rl else 0,
        privileged=_privileged(recipe) if for_rl else None,
        sharding=Sharding(ranks, recipe.deterministic) if ranks and recipe.sharing > 1 else None,
    )


def _privileged(recipe: Recipe) -> PrivilegedLoss | None:
    """Return the settings of the loss on privileged numbers, if the recipe has one."""
    part = recipe.rl.privileged
    if part is None or not recipe.rl.predicts_privileged:
        return None
    size = len(spec(recipe.environment.id).privileged)
    return PrivilegedLoss(size, part.coefficient, part.learning_rate)


def memory_of_rank(recipe: Recipe) -> int | None:
    """Return the bytes that learning may take in this process; None: see `MemoryBudget`.

    By default, the ranks on one machine share what one process would take.
    """
    launched, given = launched_rank(), recipe.training.memory_bytes
    where = device(recipe.model.device)
    if given is not None or launched is None or where.type == "cuda":
        return given
    return int(SHARE * memory_of(where) / launched.local_world)


def reference_of(recipe: Recipe, method: Method) -> Reference | None:
    """Return the reference policy that a recipe's method needs."""
    if not recipe.rl.steps or Need.REFERENCE not in method.needs:
        return None
    return recipe.rl.reference or "start"


# ── other ranks ──────────────────────────────────────────────────────────────


def follow(ranks: Ranks) -> int:
    """Learn with rank 0 until it ends; return its exit code.

    Args:
        ranks: joined; this process is not rank 0.

    Raises:
        RankLost: rank 0 died, or has been silent for too long.
        PalaestraError: this rank cannot make the learner, or its work failed; rank 0 knows.
    """
    return serve(ranks, _Maker(ranks).make)


class _Maker:
    """Makes the learners that rank 0 describes, one after the other, on one policy."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._policy: ResidentModel | None = None

    def make(self, description: Description) -> Learner:
        recipe = read_recorded(dict(description.recipe))
        if self._policy is None:
            prepare_torch(recipe)
            self._policy = _policy_of(recipe, description)
        return make_learner(
            recipe,
            self._policy,
            description.learning_rate,
            for_rl=description.for_rl,
            roles=description.roles,
            reference=description.reference,
            ranks=self._ranks,
        )


def _policy_of(recipe: Recipe, description: Description) -> ResidentModel:
    if recipe.model.name != "tiny":
        return build_policy(recipe, checked_origin(recipe, description.revisions, _silent))
    with tempfile.TemporaryDirectory(prefix="palaestra-") as name:
        for file, content in description.vocabulary.items():
            (Path(name) / file).write_bytes(content)
        return build_policy(recipe, Path(name))


def _silent(message: str) -> None:
    """Drop progress, which rank 0 shows for all."""


# ── processes that torchrun starts ───────────────────────────────────────────


def join_launched(launched: LaunchedRank) -> Ranks:
    """Join the ranks that torchrun started; return when all are there."""
    if torch.cuda.is_available() and launched.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(launched.local_rank)
    return join(
        launched.rank,
        launched.world,
        launched.address,
        hosted=launched.hosted,
        prefix=str(launched.restarts),
    )


def lead_launched(launched: LaunchedRank, work: Callable[[Team], int]) -> int:
    """Do a command's work as rank 0; all other ranks end with its exit code."""
    team, code = Team(join_launched(launched)), 1
    try:
        code = work(team)
    except PalaestraError as error:
        code = error.exit_code
        raise
    except KeyboardInterrupt:
        code = 130
        raise
    finally:
        team.ranks.end(code)
    return code


def follow_launched(launched: LaunchedRank) -> int:
    """Learn with rank 0 until it ends; return its exit code.

    Ctrl-C and SIGTERM reach all ranks at once; rank 0 stops cleanly, and then ends this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_later)
    return follow(join_launched(launched))


def check_launched(recipe: Recipe, launched: LaunchedRank) -> None:
    """Raise InputError if a recipe cannot be learned by the processes that torchrun started."""
    if device(recipe.model.device).type != "cuda":
        return
    count = torch.cuda.device_count()
    if launched.local_world > count:
        raise InputError(
            f"{launched.local_world} ranks on one machine need a CUDA device each, and it has "
            f"{count}; use --nproc-per-node {count}, or model.device=cpu."
        )


def _end_later(number: int, frame: FrameType | None) -> None:
    timer = threading.Timer(GRACE, os._exit, (128 + number,))
    timer.daemon = True
    timer.start()
