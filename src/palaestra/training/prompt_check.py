"""Checks of stages whose prompts hold hints or commands, and of teachers, before a run starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from palaestra.agents.direct import DirectAgent
from palaestra.agents.registry import agent_class, make_agent
from palaestra.agents.search.base import SearchAgent
from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.environments.registry import spec
from palaestra.learning.methods.component import Need
from palaestra.models.registry import check_model
from palaestra.training.method import check_declared
from palaestra.training.recipe import Recipe
from palaestra.training.stage_program import Made, adds_to_prompts, records_episodes
from palaestra.training.stage_sections import Distil, Evaluate, Explore, Imitate, Prefer
from palaestra.training.stage_sources import FromStage, StagePart

Stages = Mapping[str, StagePart]
"""All stages of a recipe, by name."""

Tested = dict[tuple[str, str], object]
"""The commands and the steering of evaluations, by version and split."""


def check_prompts(
    recipe: Recipe, part: Explore | Evaluate, who: str, made: Made, every: Stages
) -> set[str]:
    """Check the hints and commands of a stage; return the names of the stages that they read.

    Raises:
        InputError: they cannot be made, or nothing would read them.
    """
    hints = part.hints if isinstance(part, Explore) else ()
    for name in (*hints, *part.commands):
        _check_recorded(name, who, every)
    if part.commands and not set(part.commands) & made.episodes.keys():
        raise RecipeError(
            f"{who} makes commands of '{part.commands[0]}', which runs later; name a stage that "
            "explores before it, too."
        )
    if hints or part.commands:
        _check_alone(recipe, who)
    if isinstance(part, Explore):
        if part.agent is not None and issubclass(agent_class(part.agent), SearchAgent):
            _check_searcher(recipe, part.agent, who)
        if hints:
            _check_hints(recipe, part, who, made)
        if part.commands and part.speaker in ("expert", "random"):
            raise RecipeError(
                f"{who}: commands has no effect on the speaker '{part.speaker}', which obeys none; "
                "leave it out."
            )
    return {*hints, *part.commands}


def check_tests_agree(part: Evaluate, who: str, made: Made, tested: Tested) -> None:
    """Note an evaluation in `tested`; raise RecipeError if an earlier one was of other replies."""
    how = part.commands, part.steer
    if tested.setdefault((made.latest, part.split), how) != how:
        raise RecipeError(
            f"{who} tests '{made.latest}' on the {part.split} split, where it was tested under "
            "other commands or another steer; give both evaluations the same, or train in between."
        )


def _check_recorded(name: str, who: str, every: Stages) -> None:
    """Raise InputError unless a stage records episodes of training tasks, in whatever round."""
    part = every.get(name)
    recording = {n for n, p in every.items() if records_episodes(p) and not isinstance(p, Evaluate)}
    if part is None:
        raise UnknownName("stage that records episodes", name, recording)
    if name not in recording:
        what = "tasks are held out" if isinstance(part, Evaluate) else "stage records no episodes"
        raise RecipeError(f"{who} reads '{name}', whose {what}; name a stage that explores.")


def _check_alone(recipe: Recipe, who: str) -> None:
    """Raise RecipeError in an environment of several players."""
    players = spec(recipe.environment.id).players
    if len(players) > 1:
        raise RecipeError(
            f"{who}: hints and commands are for one agent alone, and '{recipe.environment.id}' has "
            f"the players {', '.join(players)}; leave them out."
        )


def _check_searcher(recipe: Recipe, name: str, who: str) -> None:
    """Raise RecipeError unless an agent searches by the prompts in which the policy acts."""
    own = make_agent(recipe.agent.chosen)
    if not isinstance(own, DirectAgent) or own.history is not None or own.reflects:
        raise RecipeError(
            f"{who} searches by the agent '{name}', whose prompts are those of 'direct' and not of "
            f"'{recipe.agent.chosen}'; set agent.name = 'direct'."
        )


def _check_hints(recipe: Recipe, part: Explore, who: str, made: Made) -> None:
    """Raise InputError unless attempts at the same tasks can be compared, state by state."""
    check_declared([Need.ANCHOR], recipe.environment.id, f"{who}, with hints,")
    own = made.first_tasks.get(part.like or "")
    if own is None or own not in [made.first_tasks.get(name) for name in part.hints]:
        raise RecipeError(
            f"{who}: hints are of attempts at the same tasks; set like = '{part.hints[0]}'."
        )
    if part.speaker == "random":
        raise RecipeError(f"{who}: hints has no effect on random actions; leave it out.")


def check_needs_of_prompts(
    recipe: Recipe, needs: Collection[Need], part: Imitate | Prefer, who: str, made: Made
) -> None:
    """Check that there are prompts with the hints or commands that a rule is about.

    Raises:
        RecipeError: there are none.
    """
    if Need.HINT in needs and not _reads_hints(part.sources, made):
        raise RecipeError(
            f"{who} with '{part.examples}' removes hints, and reads no prompt that holds one; let "
            "it read a stage that explores with hints."
        )
    if Need.COMMAND in needs and not adds_to_prompts(recipe):
        raise RecipeError(
            f"{who} with '{part.examples}' teaches to obey commands, and no stage states one; set "
            "commands in one that explores or evaluates."
        )


def _reads_hints(sources: Collection[object], made: Made) -> bool:
    steps = [step for s in sources if isinstance(s, FromStage) for step in made.read(s)]
    return any(isinstance(step.part, Explore) and step.part.hints for step in steps)


def check_teacher(recipe: Recipe, part: Distil, who: str, made: Made, every: Stages) -> set[str]:
    """Check the teacher of a stage; return the names of the versions that it reads.

    Raises:
        InputError: there is no such version, or it would teach nothing.
    """
    name = part.teacher
    if name is not None and name not in made.versions:
        if name in every:
            what = "runs later" if every[name].trains else "writes no version of the policy"
            raise RecipeError(f"{who} is taught by '{name}', which {what}; name an earlier stage.")
        if _is_model(name):
            raise RecipeError(
                f"{who} is taught by the model '{name}', whose tokens need not be those of "
                f"'{recipe.model.name}'; explore with speaker = '{name}', and imitate that."
            )
        raise UnknownName("version of the policy", name, made.versions)
    begins = made.latest if part.start is None else made.versions.get(part.start, [""])[-1]
    teacher = begins if name is None else made.versions[name][-1]
    if teacher == begins and not _reads_hints(part.sources, made):
        raise RecipeError(
            f"{who} is taught by the version that it begins with, and reads no prompt that holds a "
            "hint, so that there is nothing to learn; name a teacher, or explore with hints."
        )
    return set() if name is None else {name}


def _is_model(name: str) -> bool:
    try:
        check_model(name)
    except InputError:
        return False
    return True
