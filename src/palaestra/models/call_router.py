"""The router of model calls: each call goes to the nearest cluster of recorded calls, or to none.

Source: the conversion of logged calls into specialists of Belcak et al. 2025 ("Small Language
Models are the Future of Agentic AI"): calls are clustered into recurrent sub-tasks, each has a
specialist, and what fits none falls back to the general model. The paper leaves features and
distance open; here they are hashed words and pairs of words of the last message, the role and the
tools (Weinberger et al. 2009, feature hashing), and Euclidean distance between unit vectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.tool import Tool

DIMENSIONS = 256
Vector = NDArray[np.float64]


def cluster_name(number: int) -> str:
    """Return the name of the adapter of a cluster (1-based)."""
    return f"cluster_{number}"


def is_cluster(name: str) -> bool:
    """Return whether a name is that of a cluster's adapter."""
    return re.fullmatch(r"cluster_\d+", name) is not None


def features(role: str, tools: Sequence[Tool], text: str) -> Vector:
    """Return the features of a call: a unit vector [DIMENSIONS].

    Args:
        role: who is asked.
        tools: that the reply may call.
        text: the last message of the prompt.
    """
    return _features(role, tuple(tool.name for tool in tools), text)


@lru_cache(maxsize=4096)
def _features(role: str, tools: tuple[str, ...], text: str) -> Vector:
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    found = [f"role {role}", *(f"tool {name}" for name in tools), *words]
    found += [f"{one} {other}" for one, other in pairwise(words)]
    vector = np.zeros(DIMENSIONS)
    for one in found:
        place, sign = _hashed(one)
        vector[place] += sign
    norm = float(np.linalg.norm(vector))
    vector = vector / norm if norm else vector  # opposite signs may cancel out
    vector.setflags(write=False)
    return vector


@lru_cache(maxsize=65536)
def _hashed(text: str) -> tuple[int, int]:
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
    return (number >> 1) % DIMENSIONS, 1 if number & 1 else -1


def distances(point: Vector, centres: Vector) -> Vector:
    """Return the distance of a point [D] from each centre [K, D]."""
    found: Vector = np.sqrt(np.sum(np.square(centres - point), axis=1))
    return found


@dataclass(frozen=True)
class CallRouter:
    """The clusters of calls, and how far from all of them a call falls back."""

    centres: Vector  # [clusters, DIMENSIONS]
    farthest: float  # distance from the nearest centre, beyond which a call fits no cluster

    def choose(self, role: str, tools: Sequence[Tool], text: str) -> str | None:
        """Return the adapter for a call; None: it fits no cluster. See `features`."""
        found = distances(features(role, tools, text), self.centres)
        nearest = int(np.argmin(found))  # the first of equals
        return cluster_name(nearest + 1) if found[nearest] <= self.farthest else None

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"centres": self.centres.tolist(), "farthest": self.farthest}

    @property
    def names(self) -> list[str]:
        """The adapters of the clusters."""
        return [cluster_name(number) for number in range(1, len(self.centres) + 1)]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> CallRouter:
        """Return what `document` wrote."""
        return cls(np.array(document["centres"]), float(document["farthest"]))


class RoutedModel(Model):
    """A model whose replies are those of a cluster's model, of a role's, or of a general one.

    Each reply is recorded under the name of the model that gave it.
    """

    def __init__(
        self,
        router: CallRouter,
        clusters: Mapping[str, Model],
        general: Model,
        roles: Mapping[str, Model] = MappingProxyType({}),
    ) -> None:
        """Route calls.

        Args:
            router: chooses a cluster.
            clusters: the models by the clusters' names; they share the host of the general one.
            general: answers what fits no cluster.
            roles: the models of roles that are not routed; they share that host too.
        """
        self.router, self.clusters, self.general, self.roles = router, clusters, general, roles
        self.name, self.renderer = general.name, general.renderer
        self.chooses, self.native_tools = general.chooses, general.native_tools
        self.limits_reasoning, self.max_tokens = general.limits_reasoning, general.max_tokens

    @property
    def constrains(self) -> bool:
        return self.general.constrains

    @property
    def host(self) -> Model:
        return self.general.host

    async def generate(self, prompt: Prompt) -> Generation:
        return await self._chosen(prompt).generate(prompt)

    def _chosen(self, prompt: Prompt) -> Model:
        if prompt.role in self.roles:
            return self.roles[prompt.role]
        chosen = self.router.choose(prompt.role, prompt.tools, prompt.messages[-1].text)
        return self.general if chosen is None else self.clusters[chosen]
