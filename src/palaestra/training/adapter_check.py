"""Checks of the adapters that a recipe's stages train, before a run starts."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.errors import RecipeError
from palaestra.training.adapter_sections import roles_trained
from palaestra.training.recipe import Recipe
from palaestra.training.role_adapters import AGENT, learners_of
from palaestra.training.stage_program import Step
from palaestra.training.stage_sections import Imitate, Reinforce, Study
from palaestra.training.stage_sources import StagePart


def check_stage_adapters(recipe: Recipe, steps: Sequence[Step]) -> None:
    """Check that what the stages train can learn, and that they agree on the run's adapters.

    That roles exist is checked by `check_role_adapters`.

    Raises:
        RecipeError: the first problem found.
    """
    for step in steps:
        _check_learns(recipe, step.part, f"The stage '{step.name}'")
    parts = {step.name: step.part for step in steps if isinstance(step.part, Imitate)}
    counts = {p.adapters.clusters: name for name, p in parts.items() if p.adapters is not None}
    if len(counts) > 1:
        names = " and ".join(f"{name} {count}" for count, name in counts.items())
        raise RecipeError(
            "Adapters of clusters belong to the whole run, and stages ask for different numbers "
            f"of clusters ({names}); give all of them the same."
        )
    reinforced = [step.part for step in steps if isinstance(step.part, Reinforce)]
    every = recipe.training.alternate
    if every is not None and all(len(learners_of(recipe, part)) < 2 for part in reinforced):
        raise RecipeError(
            f"training.alternate = {every} has no effect: no stage reinforces two adapters; unset "
            "it, or name two roles in a stage's train."
        )


def _check_learns(recipe: Recipe, part: StagePart, who: str) -> None:
    """Raise RecipeError if a stage trains what is frozen."""
    for role in roles_trained(part) or ():
        if role not in recipe.training.learners:
            raise RecipeError(
                f"{who} trains the adapter of '{role}', which is frozen for the whole run; unset "
                f"training.adapters.{role}.frozen."
            )
    text = isinstance(part, Study) or (isinstance(part, Imitate) and part.general is not None)
    if text and recipe.training.weights == "lora" and AGENT not in learners_of(recipe, part):
        raise RecipeError(
            f"{who} learns text, which trains the agent's adapter, and that is frozen there; let "
            "'agent' learn, or leave the text out."
        )
