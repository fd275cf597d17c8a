"""Checks of stages that learn from episodes without actions, and by adapters of their own."""

from __future__ import annotations

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.runtime.machine import launched_rank
from palaestra.training.recipe import Recipe
from palaestra.training.stage_program import Made
from palaestra.training.stage_sources import FromStage, StagePart


def check_labelled(source: FromStage, who: str, made: Made, every: dict[str, StagePart]) -> None:
    """Raise InputError unless that stage has labelled the source's episodes by then."""
    name = source.labelled
    if name is None or name not in made.labels:
        raise UnknownName("earlier stage that labels", str(name), made.labels)
    read = getattr(every[name], "sources", ())
    if not any(isinstance(one, FromStage) and one.stage == source.stage for one in read):
        raise RecipeError(
            f"{who} takes actions of '{source.stage}' from '{name}', which does not read it; add "
            f"it to the from of '{name}'."
        )


def check_own_adapters(recipe: Recipe, who: str) -> None:
    """Raise RecipeError if a stage cannot train adapters of its own."""
    if recipe.training.weights != "full":
        raise RecipeError(
            f"{who} sets adapter_rank, and training.weights = '{recipe.training.weights}' chooses "
            "what all stages train; unset one of them."
        )
    if launched_rank() is not None:
        raise RecipeError(
            f"{who} sets adapter_rank, which one process trains alone; start the run without "
            "torchrun, or unset it."
        )
