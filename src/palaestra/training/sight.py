"""Whether the model of a recipe sees the images that its environment shows."""

from __future__ import annotations

from palaestra.core.errors import RecipeError
from palaestra.environments.registry import spec
from palaestra.models.registry import sees
from palaestra.training.recipe import Recipe


def check_sight(recipe: Recipe) -> None:
    """Raise RecipeError if the environment shows images and the model reads text only.

    A model that is not downloaded yet passes; it is checked again when it is there.
    """
    part, environment = recipe.model, recipe.environment.id
    if not spec(environment).images:
        return
    if part.name == "tiny":
        blind = part.tiny is None or part.tiny.vision is None
        remedy = "set model.tiny.vision.merge=7"
    else:
        blind = sees(part.name) is False
        remedy = "choose a model that sees"
    if blind:
        raise RecipeError(
            f"The model '{part.name}' reads text only, and '{environment}' shows images; {remedy}, "
            "or leave out the knob observation."
        )
