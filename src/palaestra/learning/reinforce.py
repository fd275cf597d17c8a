"""The reinforcement-learning loop: roll out, credit, learn, again.

One step draws tasks, lives a group of rollouts of each with the present policy,
compares each rollout with its siblings, and moves the weights a few times. The
loop holds no state but the step number, the learner and what the credit rule
remembers: everything else is derived from seeds, so a resumed run goes on exactly.
With `staleness` k, the rollouts of step s + k are lived before step s is learned:
the data flow of an asynchronous run, without its chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Protocol

from palaestra.core.episode import Episode, Key
from palaestra.core.session import derive_seed
from palaestra.core.task import Split, TaskSet
from palaestra.learning.learner import Update
from palaestra.learning.rewards import Shaping
from palaestra.learning.study import Study, StudyPlan
from palaestra.rollout.runner import Job


@dataclass(frozen=True, slots=True)
class ReinforcementPlan:
    """What one run of the loop does."""

    steps: int
    tasks: int  # tasks per step
    group: int  # rollouts per task
    shaping: Shaping
    study: StudyPlan
    staleness: int = 0  # steps between rolling out and learning
    turns: Callable[[int], int | None] = field(default=lambda step: None)
    """Turns per episode at a step (1-based); None leaves the rollout's own."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did: its number, its rollouts, and the figures to log."""

    step: int  # 1-based
    episodes: list[Episode]
    metrics: dict[str, float]
    memory: Mapping[str, float]  # what the credit rule remembers; a resumed run needs it


class Live(Protocol):
    """Makes the episodes of a step: `Rollout.run`, or something around it."""

    async def __call__(
        self, jobs: Sequence[Job], *, turns: int | None, greedy: bool
    ) -> list[Episode]: ...


async def reinforce(
    study: Study,
    live: Live,
    tasks: TaskSet,
    plan: ReinforcementPlan,
    *,
    seed: int,
    first: int,
    memory: Mapping[str, float],
    after: Callable[[StepResult], bool],
) -> None:
    """Run steps `first` to `plan.steps` (1-based); `after` a step says whether to go on.

    Raises:
        TooManyFaults: most of a step's episodes broke through no fault of the agent.
    """
    ready: dict[int, list[Episode]] = {}
    for step in range(first, plan.steps + 1):
        started = time.monotonic()
        for ahead in range(step, min(step + plan.staleness, plan.steps) + 1):
            if ahead not in ready:
                jobs = jobs_of(ahead, tasks, plan, seed)
                ready[ahead] = await live(jobs, turns=plan.turns(ahead), greedy=False)
        episodes = ready.pop(step)
        greedy = await _greedy(live, step, tasks, plan, seed) if study.compares_greedy else {}
        acted = time.monotonic()
        updates, memory, more = study.learn(step, episodes, plan.shaping, memory, greedy)
        metrics = figures(episodes, updates, plan.shaping) | more
        metrics["rollout_seconds"] = acted - started
        metrics["learn_seconds"] = time.monotonic() - acted
        if not after(StepResult(step, episodes, metrics, memory)):
            return


def jobs_of(step: int, tasks: TaskSet, plan: ReinforcementPlan, seed: int) -> list[Job]:
    """The rollouts of one step: `group` of each of `tasks` training tasks, none seen before."""
    base = derive_seed("tasks", seed) % 1_000_000 * 1_000
    start = base + (step - 1) * plan.tasks
    return [
        Job(Key(f"rl/{step}", g, member), task)
        for g, task in enumerate(tasks.take(Split.TRAIN, plan.tasks, start))
        for member in range(plan.group)
    ]


async def _greedy(
    live: Live, step: int, tasks: TaskSet, plan: ReinforcementPlan, seed: int
) -> dict[int, float]:
    """The return of one greedy rollout of each task (ReMax)."""
    phase = f"greedy/{step}"
    jobs = [
        Job(Key(phase, job.key.group), job.task)
        for job in jobs_of(step, tasks, plan, seed)
        if job.key.member == 0
    ]
    episodes = await live(jobs, turns=plan.turns(step), greedy=True)
    return {e.key.group: plan.shaping.episode_return(e) for e in episodes if e.outcome.scored}


def figures(episodes: list[Episode], updates: list[Update], shaping: Shaping) -> dict[str, float]:
    """The numbers of one step: of its rollouts, and means over its updates."""
    scored = [e for e in episodes if e.outcome.scored]
    turns = sum(e.usage.turns for e in scored)
    values: dict[str, float] = {
        "success": fmean(e.outcome.solved for e in scored),
        "reward": fmean(shaping.episode_return(e) for e in scored),
        "turns": turns / len(scored),
        "invalid": sum(e.invalid_turns for e in scored) / max(turns, 1),
        "unscored": len(episodes) - len(scored),
        "sampled_tokens": sum(e.usage.sampled_tokens for e in episodes),
        "prompt_tokens": sum(e.usage.prompt_tokens for e in episodes),
    }
    if updates:
        for name in asdict(updates[0]):
            values[name] = fmean(getattr(update, name) for update in updates)
        for name in ("tokens", "processed"):
            values[name] *= len(updates)
        # the first update starts at the sampler's own weights: what remains is arithmetic
        values["gap"], values["gap_max"] = updates[0].gap, updates[0].gap_max
    return values
