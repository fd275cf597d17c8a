"""Keys of stages that learn from episodes without actions, and by adapters of their own."""

from __future__ import annotations

from pydantic import Field

from palaestra.training.recipe_sections import Section


class InverseModel(Section):
    """The inverse dynamics model of a stage that labels."""

    share: float = Field(
        0.1, gt=0, lt=1, description="share of the episodes whose actions are read: the first ones"
    )
    updates: int = Field(200, ge=1)
    batch: int = Field(64, ge=1, description="actions per update")
    learning_rate: float = Field(1e-3, gt=0)


class OwnAdapters(Section):
    """The adapters of a stage that trains some in place of the weights."""

    adapter_rank: int | None = Field(
        None,
        ge=1,
        description="train LoRA adapters of this rank, and add them to the weights at the end; "
        "unset: train the weights",
    )
