"""The stage that tests the policy on tasks that it never learns from."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from palaestra.core.episode import Episode, Key
from palaestra.core.model import adapter_role
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.registry import tasks
from palaestra.evaluation.reports.report import REMARKS
from palaestra.evaluation.statistics.player_results import has_success, line, scores_of
from palaestra.models.local.guidance import Guide
from palaestra.rollout.annotated_environment import Notes
from palaestra.rollout.runner import Job
from palaestra.runtime.progress import percent
from palaestra.training.run_context import RunContext, typical_turns
from palaestra.training.stage_counters import EpisodeCounter
from palaestra.training.stage_sources import BASE


async def evaluate_policy(
    context: RunContext,
    policy: str,
    ready: Callable[[], Awaitable[None]],
    split: Split = Split.TEST,
    count: int | None = None,
    notes: Callable[[], Notes] | None = None,
    steer: Callable[[], Guide] | None = None,
) -> None:
    """Test the policy on a split and, if trained, on the transfer environment.

    Args:
        context: of the run.
        policy: under what the version of the policy is recorded.
        ready: puts that version in place.
        split: of the tasks; only tests use the transfer environment.
        count: of tasks; None: the recipe's.
        notes: what is added to the observations; None: nothing.
        steer: makes what steers the replies; None: the policy alone replies.
    """
    part, environment = context.recipe.evaluation, context.recipe.environment
    count = part.tasks if count is None else count
    chosen = _taken(context, context.tasks, split, count)
    await _run(context, f"{split}/{policy}", ready, chosen, context.turns, notes, steer)
    if split is Split.TEST and environment.transfer is not None and policy != BASE:
        turns = typical_turns(environment.transfer)
        transfer = tasks(environment.transfer)
        others = _taken(context, transfer, Split.TEST, part.transfer_tasks)
        await _run(context, f"transfer/{policy}", ready, others, turns, notes, steer)


def _taken(context: RunContext, known: TaskSet, split: Split, count: int) -> list[Task]:
    """Return tasks of a split, each once: repeats would make intervals over tasks too narrow.

    Where the split has fewer than `count`, say so, now and in the report.
    """
    chosen = known.take_once(split, count)
    where = f"'{known.environment}' has {len(chosen)} {split} tasks"
    remark = f"{where}, and each of them is taken once (requested: {count})."
    remarks = context.store.get(REMARKS) or []
    if len(chosen) < count and remark not in remarks:
        context.reporter.say(remark)
        context.store.put(REMARKS, [*remarks, remark])
    return chosen


async def _run(
    context: RunContext,
    phase: str,
    ready: Callable[[], Awaitable[None]],
    tasks: Sequence[Task],
    turns: int,
    notes: Callable[[], Notes] | None,
    steer: Callable[[], Guide] | None,
) -> None:
    jobs = [Job(Key(phase, i), task) for i, task in enumerate(tasks)]
    if context.accounts.is_done(phase) and not context.lacks(phase, len(jobs)):
        return
    await ready()
    started = time.monotonic()
    with (
        context.reporter.stage(phase.replace("/", " "), len(jobs), "tasks") as shown,
        _steered(context, steer),
    ):
        counter = EpisodeCounter(context, shown)
        roles = context.roles(context.policy)
        rollout = context.rollout(roles, turns, counter.add, notes=notes)
        episodes = await context.run_jobs(rollout, jobs)
    scored = [e.outcome.solved for e in episodes if e.outcome.scored]
    where = f" on {tasks[0].environment}, never trained on" if phase.startswith("transfer/") else ""
    how = "" if steer is None else ", steered by action values"
    players = scores_of(episodes)
    found = f"success {percent(fmean(scored))}"
    if not has_success(tasks[0].environment, players):
        found = f"mean returns {line(players)}"
    context.reporter.say(f"{phase}: {found} of {len(scored)}{where}{how}")
    if context.policy.router is not None:
        context.reporter.say(f"{phase}: {_answers(episodes)}")
    seconds = time.monotonic() - started
    context.accounts.finish_stage(phase, seconds, **tokens_of(episodes), trained=0)
    context.tracking.log_success(phase)


@contextmanager
def _steered(context: RunContext, steer: Callable[[], Guide] | None) -> Iterator[None]:
    """Let the policy's replies be steered within the context."""
    engine = context.policy.engine
    engine.guide = None if steer is None else steer()
    try:
        yield
    finally:
        engine.guide = None


def _answers(episodes: Sequence[Episode]) -> str:
    """Return which adapters answered the calls of episodes, and at what cost, in words."""
    own = "agent"  # its adapter answers what is not routed, whoever is asked
    names = Counter(adapter_role(call.policy, own) for e in episodes for call in e.calls)
    shares = ", ".join(f"{name} {percent(n / names.total())}" for name, n in sorted(names.items()))
    tokens, solved = tokens_of(episodes), sum(e.outcome.solved for e in episodes)
    cost = f"{sum(tokens.values()) / solved:,.0f}" if solved else "no"
    return f"calls answered by {shares}; {cost} tokens per success"


def tokens_of(episodes: Sequence[Episode]) -> dict[str, int]:
    """Return the tokens that episodes took, as `Accounts.finish_stage` names them."""
    return {
        "sampled": sum(e.usage.sampled_tokens for e in episodes),
        "prompt": sum(e.usage.prompt_tokens for e in episodes),
    }
