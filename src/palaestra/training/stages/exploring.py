"""The stage that records episodes on training tasks, for later stages to learn from."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from palaestra.core.environment import Capability
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Finish, Model
from palaestra.core.task import Split
from palaestra.environments.registry import spec
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.runner import Job
from palaestra.training.demonstrations import longest
from palaestra.training.run_context import RunContext
from palaestra.training.stage_counters import EpisodeCounter
from palaestra.training.stage_sections import Explore
from palaestra.training.stages.testing import tokens_of

FIRST_DEMONSTRATION = 1_000_000_000  # training tasks from this number on are for demonstrations


async def explore(context: RunContext, part: Explore, ready: Callable[[], Awaitable[None]]) -> None:
    """Record the episodes of the stage, unless that is done.

    Args:
        context: of the stage.
        part: its table.
        ready: puts the policy's latest version in place.

    Raises:
        InputError: the environment declares no expert, or the expert solves nothing.
    """
    phase, count = context.record, part.tasks * part.group
    if context.accounts.is_done(phase) and not context.lacks(phase, count):
        return
    if part.speaker == "policy":
        await ready()
    started = time.monotonic()
    if part.agent is not None:
        context = context.acting_as(part.agent)
    episodes = await record(context, phase, part.speaker, part.tasks, part.group)
    seconds = time.monotonic() - started
    context.accounts.finish_stage(phase, seconds, **tokens_of(episodes), trained=0)


async def record(
    context: RunContext, phase: str, speaker: str, count: int, group: int = 1
) -> list[Episode]:
    """Run a speaker, in the agent's format, on training tasks.

    Args:
        context: of the stage.
        phase: of the episodes.
        speaker: expert, policy or random.
        count: of tasks.
        group: episodes per task.

    Raises:
        InputError: the environment declares no expert, or the expert solves nothing.
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
        demonstrator: Model = context.policy
        match speaker:
            case "expert":
                demonstrator = ExpertModel(context.agent, context.policy.renderer)
            case "random":
                demonstrator = RandomModel(context.agent, context.policy.renderer)
        rollout = context.rollout(context.roles(demonstrator), context.turns, counter.add)
        episodes = await context.run_jobs(rollout, jobs)
    if isinstance(demonstrator, ExpertModel):
        _check_expert(episodes, context)
    return episodes


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
