"""The keys of a stage that distils."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palaestra.training.recipe_sections import Section


class Distillation(Section):
    """The settings of distillation."""

    teacher: str | None = Field(
        None,
        description="the version that it learns from: base, or a stage; unset: the one that the "
        "stage begins with, which reads the hints in the prompts",
    )
    divergence: Literal["forward", "reverse"] = Field(
        "forward", description="KL(teacher || student) (forward), or KL(student || teacher)"
    )
    least: float = Field(
        0.0, ge=0, le=1, description="lowest success of an episode: 0 all of them, 1 solved ones"
    )
    epochs: int = Field(2, ge=1)
    batch: int = Field(8, ge=1, description="rows per optimizer step")
    learning_rate: float = Field(1e-4, gt=0)
