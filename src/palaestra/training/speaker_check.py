"""Checks of speakers, and of the environments in which they record, before a run starts."""

from __future__ import annotations

from collections.abc import Collection

from palaestra.agents.registry import make_agent
from palaestra.core.environment import Capability
from palaestra.core.errors import RecipeError
from palaestra.environments.registry import spec
from palaestra.models.registry import check_model
from palaestra.training.recipe import Recipe
from palaestra.training.stage_program import Made
from palaestra.training.stage_sources import FromSpeaker, FromStage, StagePart
from palaestra.training.stages.reading import SCRIPTED


def check_speaker(recipe: Recipe, speaker: str, who: str, environments: Collection[str]) -> None:
    """Check that a speaker can record.

    Args:
        recipe: of the run.
        speaker: expert, policy, random, or a model's name.
        who: the stage, in words.
        environments: in which it records.

    Raises:
        InputError: it cannot, or the run's agent cannot act there.
    """
    if speaker not in SCRIPTED:
        check_model(speaker)
        if recipe.deterministic:
            raise RecipeError(
                f"{who} lets '{speaker}' speak, whose replies are not equal in each run; unset "
                "deterministic."
            )
    for environment in environments:
        capabilities = spec(environment).capabilities
        if speaker.partition("?")[0] == "expert" and Capability.ORACLE not in capabilities:
            raise RecipeError(
                f"{who} records the expert of '{environment}', which has none; let the policy "
                "speak, or choose another environment."
            )
        if environment != recipe.environment.id:
            _check_level(recipe, environment, who)


def _check_level(recipe: Recipe, level: str, who: str) -> None:
    """Raise RecipeError unless the run's agent and model can act in another environment."""
    own, other = spec(recipe.environment.id), spec(level)
    if other.images and not own.images:
        raise RecipeError(
            f"{who} records in '{level}', which shows images, and '{recipe.environment.id}' shows "
            "none; choose levels that agree with the run's environment."
        )
    if len(other.players) > 1 and not make_agent(recipe.agent.chosen).several:
        raise RecipeError(
            f"{who} records in '{level}', which has the players {', '.join(other.players)}, and "
            f"the agent '{recipe.agent.chosen}' plays one; leave it out of levels, or set "
            "agent.name = 'players'."
        )


def environments_read(recipe: Recipe, part: StagePart, made: Made) -> list[str]:
    """Return the environments of the episodes that a stage reads, other runs' left out.

    Args:
        recipe: of the run.
        part: the stage's table.
        made: what earlier stages have made.
    """
    found: list[str] = []
    for source in getattr(part, "sources", ()):
        if isinstance(source, FromSpeaker):
            found += source.counts(recipe.environment.id)
        elif isinstance(source, FromStage):
            for step in made.read(source):
                own = [s for s in getattr(step.part, "sources", ()) if isinstance(s, FromSpeaker)]
                levels = [level for one in own for level in one.counts(recipe.environment.id)]
                found += levels or [recipe.environment.id]
    return list(dict.fromkeys(found)) or [recipe.environment.id]
