"""A tiny transformer as a checkpoint, and engines on Ray that act with it; for benchmarks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from palaestra.cluster.engines import Engines, engine_kind
from palaestra.cluster.ray_launcher import RayLauncher
from palaestra.core.model import Model
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.local.weight_stream import Weights, copy_weights
from palaestra.training.policy_building import build_policy, export, write_vocabulary
from palaestra.training.recipe import load
from palaestra.training.run import vocabulary_texts


class Policy:
    """The policy of the recipe `quick`."""

    def __init__(self, folder: Path, *keys: str) -> None:
        self.recipe = load("quick", list(keys))
        tokenizer = learn_vocabulary(vocabulary_texts(self.recipe))
        write_vocabulary(self.recipe, tokenizer, folder / "vocabulary")
        self.model: ResidentModel = build_policy(self.recipe, folder / "vocabulary")
        self.folder = folder / "exported"
        export(self.model, self.recipe, self.folder)

    def weights(self) -> Weights:
        return copy_weights(self.model.network.state_dict(), self.model.version)


@asynccontextmanager
async def acting(policy: Policy, count: int, sessions: int) -> AsyncIterator[tuple[Engines, Model]]:
    """Start engines on Ray and give them the policy."""
    kind = engine_kind(count)
    options = {
        "slots": sessions,
        "context": policy.recipe.model.context,
        "precision": "fp32",
        "backend": "auto",
        "schedule": "fcfs",
        "on_update": "drain",
    }
    launcher = RayLauncher(None, [kind])
    async with Engines(launcher, print, kind) as engines:
        yield (
            engines,
            await engines.begin(
                "policy",
                policy.model.renderer,
                policy.folder,
                policy.weights(),
                options=options,
                sessions=sessions,
                one_by_one=False,
            ),
        )
