"""Keys of stages that say which LoRA adapters learn: those of roles, or those of clusters of calls.

The adapters belong to the run: each version of the policy holds all of them. `training.adapters`
says what the adapter of a role begins with; a role that a stage trains has one, named there or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from palaestra.models.call_router import cluster_name
from palaestra.training.recipe_sections import Section


class TrainedRoles(Section):
    """A stage that may train the adapters of some roles, while all others act as they are."""

    train: dict[str, Literal["lora", "frozen"]] | None = Field(
        None,
        description='roles whose adapters learn in this stage, e.g. {planner = "lora"}; all others '
        "act, and stay as they are; unset: all adapters learn",
    )

    @field_validator("train")
    @classmethod
    def _something_learns(cls, train: dict[str, str] | None) -> dict[str, str] | None:
        if train is not None and "lora" not in train.values():
            raise ValueError('no role learns; set one of them to "lora", or leave train out')
        return train


def roles_trained(part: object) -> tuple[str, ...] | None:
    """Return the roles whose adapters a stage trains; None if it trains all, or has no such key."""
    if not isinstance(part, TrainedRoles) or part.train is None:
        return None
    return tuple(role for role, how in part.train.items() if how == "lora")


class Clusters(Section):
    """Adapters of clusters of calls, to which a router sends each call."""

    clusters: int = Field(ge=2, description="how many, each with an adapter of its own")
    fallback: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="share of the recorded calls that are too far from all clusters: such calls "
        "are answered by the agent's own adapter",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters' names."""
        return tuple(cluster_name(number) for number in range(1, self.clusters + 1))


def adapters_named(stages: object) -> Iterator[str]:
    """Yield the names of the adapters that stages train, from tables that are not checked yet."""
    for table in stages if isinstance(stages, list | tuple) else ():
        if not isinstance(table, Mapping):
            continue
        train, routed = table.get("train"), table.get("adapters")
        if isinstance(train, Mapping):
            yield from map(str, train)
        if isinstance(routed, Mapping) and isinstance(count := routed.get("clusters"), int):
            yield from map(cluster_name, range(1, count + 1))
        yield from adapters_named(table.get("stages"))


def with_adapters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tables of a recipe with an adapter for each role and cluster that a stage trains.

    Raises:
        ValueError: the recipe has no LoRA adapters.
    """
    training = data.get("training") or {}
    named = list(dict.fromkeys(adapters_named(data.get("stage"))))
    if not named or not isinstance(training, Mapping):
        return data
    if training.get("weights") != "lora":
        raise ValueError(
            "stages choose the adapters that they train, and training.weights is not 'lora'; set "
            "training.weights = 'lora' and training.lora_rank"
        )
    given = training.get("adapters") or {}
    if isinstance(given, list | tuple) and len(set(map(str, given))) == len(given):
        given = {str(role): {} for role in given}
    if not isinstance(given, Mapping):  # refused where it is checked
        return data
    new: dict[str, object] = {role: {} for role in named if role != "agent" and role not in given}
    return {**data, "training": {**training, "adapters": {**given, **new}}}
