"""Recording: speakers on training tasks, in the agent's format, and what of it fits the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from palaestra.core.environment import Capability
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Finish, Model
from palaestra.core.task import Split
from palaestra.environments.registry import spec, tasks
from palaestra.models.registry import load_model
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.annotated_environment import Notes
from palaestra.rollout.runner import Job
from palaestra.training.demonstrations import longest
from palaestra.training.policy_building import slots_of
from palaestra.training.run_context import RunContext, typical_turns
from palaestra.training.stage_counters import EpisodeCounter

FIRST_DEMONSTRATION = 1_000_000_000  # training tasks from this number on are for demonstrations


async def record(
    context: RunContext,
    phase: str,
    speaker: str,
    counts: Mapping[str, int],
    group: int = 1,
    notes: Callable[[], Notes] | None = None,
) -> list[Episode]:
    """Run a speaker, in the agent's format, on training tasks.

    Args:
        context: of the stage.
        phase: of the episodes.
        speaker: expert, policy, random, or a model's name.
        counts: of tasks, by environment.
        group: episodes per task.
        notes: what is added to the observations; None: nothing.

    Raises:
        InputError: an environment declares no expert, its expert solves nothing, or the model
            cannot be loaded.
    """
    for environment in counts:
        if speaker == "expert" and Capability.ORACLE not in spec(environment).capabilities:
            raise InputError(f"'{environment}' has no expert to imitate; use --no-imitation.")
    start = FIRST_DEMONSTRATION + context.recipe.seed * 1_000_000 + context.first_task
    chosen = [
        (environment, task)
        for environment, count in counts.items()
        for task in tasks(environment).take(Split.TRAIN, count, start)
    ]
    jobs = [
        Job(Key(phase, i, member), task)
        for i, (_, task) in enumerate(chosen)
        for member in range(group)
    ]
    turns = context.recipe.environment.turns or max(map(typical_turns, counts))
    with context.reporter.stage(phase.replace("/", " "), len(jobs), "episodes") as shown:
        counter = EpisodeCounter(context, shown)
        demonstrator = _speaking(context, speaker)
        try:
            roles = context.roles(demonstrator)
            rollout = context.rollout(roles, turns, counter.add, notes=notes)
            episodes = await context.run_jobs(rollout, jobs)
        finally:
            if demonstrator is not context.policy:
                await demonstrator.close()
    if speaker == "expert":
        for environment in counts:
            own = [e for e in episodes if chosen[e.key.group][0] == environment]
            _check_expert(own, context, environment, turns)
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
        InputError: in some environment, none does.
    """
    limit = context.recipe.model.context
    found = [episode for episode in shown if longest(episode) <= limit]
    for environment in dict.fromkeys(episode.task.environment for episode in shown):
        lengths = [longest(one) for one in shown if one.task.environment == environment]
        if min(lengths) > limit:
            raise InputError(
                f"None of the {len(lengths)} demonstrations on '{environment}' fits into "
                f"model.context = {limit}; the shortest has {min(lengths)} tokens: raise "
                "model.context, or let the agent keep less of its history."
            )
    if left := len(shown) - len(found):
        context.reporter.say(
            f"{left} of {len(shown)} demonstrations left out: longer than model.context = {limit}"
        )
    return found


def _check_expert(
    shown: Sequence[Episode], context: RunContext, environment: str, turns: int
) -> None:
    """Raise InputError if the expert solved nothing; mostly its replies are cut short."""
    if any(episode.outcome.solved for episode in shown):
        return
    calls = [call for episode in shown for call in episode.calls]
    cut = sum(call.finish is Finish.LENGTH for call in calls)
    raise InputError(
        f"The expert solved none of {len(shown)} tasks of '{environment}', so "
        f"there is nothing to imitate; {cut} of its {len(calls)} replies were cut at "
        f"agent.max_tokens={context.recipe.agent.max_tokens} and episodes end after "
        f"{turns} turns: raise either, or set imitation.demonstrations=0."
    )
