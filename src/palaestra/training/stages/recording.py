"""Recording: speakers on training tasks, in the agent's format, and what of it fits the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaestra.core.environment import Capability
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Finish, Model
from palaestra.core.task import Split
from palaestra.environments.registry import spec
from palaestra.models.registry import load_model
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.annotated_environment import Notes
from palaestra.rollout.runner import Job
from palaestra.training.demonstrations import longest
from palaestra.training.policy_building import slots_of
from palaestra.training.run_context import RunContext
from palaestra.training.stage_counters import EpisodeCounter

FIRST_DEMONSTRATION = 1_000_000_000  # training tasks from this number on are for demonstrations


async def record(
    context: RunContext,
    phase: str,
    speaker: str,
    count: int,
    group: int = 1,
    notes: Callable[[], Notes] | None = None,
) -> list[Episode]:
    """Run a speaker, in the agent's format, on training tasks.

    Args:
        context: of the stage.
        phase: of the episodes.
        speaker: expert, policy, random, or a model's name.
        count: of tasks.
        group: episodes per task.
        notes: what is added to the observations; None: nothing.

    Raises:
        InputError: the environment declares no expert, the expert solves nothing, or the model
            cannot be loaded.
    """
    environment = context.recipe.environment.id
    if speaker == "expert" and Capability.ORACLE not in spec(environment).capabilities:
        raise InputError(f"'{environment}' has no expert to imitate; use --no-imitation.")
    start = FIRST_DEMONSTRATION + context.recipe.seed * 1_000_000 + context.first_task
    chosen = context.tasks.take(Split.TRAIN, count, start)
    jobs = [
        Job(Key(phase, i, member), task) for i, task in enumerate(chosen) for member in range(group)
    ]
    with context.reporter.stage(phase.replace("/", " "), len(jobs), "episodes") as shown:
        counter = EpisodeCounter(context, shown)
        demonstrator = _speaking(context, speaker)
        try:
            roles = context.roles(demonstrator)
            rollout = context.rollout(roles, context.turns, counter.add, notes=notes)
            episodes = await context.run_jobs(rollout, jobs)
        finally:
            if demonstrator is not context.policy:
                await demonstrator.close()
    if speaker == "expert":
        _check_expert(episodes, context)
    return episodes


def _speaking(context: RunContext, speaker: str) -> Model:
    """Return the model of a speaker."""
    match speaker:
        case "policy":
            return context.policy
        case "expert":
            return ExpertModel(context.agent, context.policy.renderer)
        case "random":
            return RandomModel(context.agent, context.policy.renderer)
    return load_model(
        speaker,
        context.agent,
        slots=slots_of(context.recipe),
        context=context.recipe.model.context,
        progress=context.reporter.say,
    )


def fitting(shown: Sequence[Episode], context: RunContext) -> list[Episode]:
    """Return the episodes that fit into the policy's context.

    Raises:
        InputError: none does.
    """
    limit = context.recipe.model.context
    found = [episode for episode in shown if longest(episode) <= limit]
    if shown and not found:
        raise InputError(
            f"None of the {len(shown)} demonstrations on '{context.recipe.environment.id}' fits "
            f"into model.context = {limit}; the shortest has {min(map(longest, shown))} tokens: "
            "raise model.context, or let the agent keep less of its history."
        )
    if left := len(shown) - len(found):
        context.reporter.say(
            f"{left} of {len(shown)} demonstrations left out: longer than model.context = {limit}"
        )
    return found


def _check_expert(shown: Sequence[Episode], context: RunContext) -> None:
    """Raise InputError if the expert solved nothing; mostly its replies are cut short."""
    if any(episode.outcome.solved for episode in shown):
        return
    calls = [call for episode in shown for call in episode.calls]
    cut = sum(call.finish is Finish.LENGTH for call in calls)
    raise InputError(
        f"The expert solved none of {len(shown)} tasks of '{context.recipe.environment.id}', so "
        f"there is nothing to imitate; {cut} of its {len(calls)} replies were cut at "
        f"agent.max_tokens={context.recipe.agent.max_tokens} and episodes end after "
        f"{context.turns} turns: raise either, or set imitation.demonstrations=0."
    )
