"""A tiny policy, and engines of plain processes that act with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import torch

from palaestra.cluster.engines import Engines, engine_kind
from palaestra.cluster.placement import Kind
from palaestra.core.model import Model
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.local.weight_stream import Weights, copy_weights
from palaestra.training.policy_building import build_policy, export, write_vocabulary
from palaestra.training.recipe import Recipe, load
from palaestra.training.run import vocabulary_texts
from tests.cluster.processes import Processes
from tests.training.runs import write_recipe


class Policy:
    """The tiny transformer with its checkpoint."""

    def __init__(self, folder: Path, *keys: str) -> None:
        self.recipe: Recipe = load(str(write_recipe(folder)), list(keys))
        write_vocabulary(
            self.recipe, learn_vocabulary(vocabulary_texts(self.recipe)), folder / "vocabulary"
        )
        self.model: ResidentModel = build_policy(self.recipe, folder / "vocabulary")
        self.folder = folder / "exported"
        export(self.model, self.recipe, self.folder)

    def weights(self) -> Weights:
        return copy_weights(self.model.network.state_dict(), self.model.version)

    def learn(self) -> Weights:
        """Change the weights; return them with their new version."""
        with torch.no_grad():
            for tensor in self.model.network.parameters():
                tensor.add_(0.01 * torch.randn_like(tensor))
        self.model.updated()
        return self.weights()


@asynccontextmanager
async def acting(
    policy: Policy,
    count: int,
    launcher: Processes,
    say: Callable[[str], None] = print,
    *,
    sessions: int = 16,
    one_by_one: bool = False,
    kind: Kind | None = None,
) -> AsyncIterator[tuple[Engines, Model]]:
    options = {
        "slots": sessions,
        "context": policy.recipe.model.context,
        "precision": "fp32",
        "backend": "auto",
        "schedule": "fcfs",
        "on_update": policy.model.engine.on_update.value,
    }
    async with Engines(launcher, say, kind or engine_kind(count)) as engines:
        yield (
            engines,
            await engines.begin(
                "policy",
                policy.model.renderer,
                policy.folder,
                policy.weights(),
                options=options,
                sessions=sessions,
                one_by_one=one_by_one,
            ),
        )
