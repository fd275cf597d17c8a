"""The reinforcement-learning loop: roll out, credit, learn, again.

One step samples tasks, rolls out a group of rollouts of each with the present policy,
compares each rollout with its siblings, and updates the weights a few times. The
loop holds no state but the step number, the learner and the credit rule's state:
everything else is derived from seeds, so a resumed run continues exactly.
With `staleness` k, rollouts are trained on up to k steps after they were started; an
`asynchronous` run makes them while the learner works (see `rollout_source`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from palaestra.core.episode import Episode, Key, derive_seed
from palaestra.core.model import is_of
from palaestra.learning.compute.cooperative import interleave, run_in_thread
from palaestra.learning.curricula.practice import Past, Practice, attempts, replayed
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.trees import own_tokens
from palaestra.learning.loop.consolidation import ConsolidationPlan, consolidate
from palaestra.learning.loop.learner import Update
from palaestra.learning.loop.phases import PhaseKind
from palaestra.learning.loop.rollout_source import (
    AsynchronousSource,
    SourceState,
    SynchronousSource,
)
from palaestra.learning.loop.trainer_step import TrainerStep, TrainerStepPlan
from palaestra.rollout.runner import Job


@dataclass(frozen=True, slots=True)
class ReinforcementPlan:
    """The settings of one run of the loop."""

    steps: int
    practice: Practice  # which tasks
    tasks: int  # per step
    group: int  # rollouts per task
    shaping: Shaping
    trainer_step: TrainerStepPlan
    staleness: int = 0  # steps between starting a rollout and learning from it
    asynchronous: int = 0  # groups in flight while the learner works; 0: alternate with it
    replay: bool = False  # replace a rollout of a hopeless group by a stored success (ARPO)
    consolidation: ConsolidationPlan | None = None  # steps of self-imitation in between
    name: str = "rl"  # under which its rollouts are recorded
    has_success: bool = True  # false in games between players, who have a return each
    turns: Callable[[int], int | None] = field(default=lambda step: None)
    """Turns per episode at a step (1-based); None leaves the rollout's own."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step: its number, its rollouts, and the metrics to log."""

    step: int  # 1-based
    episodes: list[Episode]
    metrics: dict[str, float]
    memory: Mapping[str, float]  # the credit rule's state; a resumed run needs it
    source_state: SourceState  # the state of the rollout source; likewise


class RollOut(Protocol):
    """Rollout function of a step's jobs: `Rollout.run`, or a wrapper of it."""

    async def __call__(
        self, jobs: Sequence[Job], *, turns: int | None, greedy: bool
    ) -> list[Episode]: ...


async def reinforce(
    trainer: TrainerStep,
    roll_out: RollOut,
    plan: ReinforcementPlan,
    *,
    first: int,
    past: Past,
    history: Sequence[Mapping[str, float]],
    recall: Callable[[Key], Episode | None],
    memory: Mapping[str, float],
    after: Callable[[StepResult], bool],
    source_state: SourceState | None = None,
    publish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run steps `first` to `plan.steps` (1-based); `after` a step returns whether to continue.

    Args:
        trainer: trains the learner on a step's rollouts.
        roll_out: makes the rollouts.
        plan: the settings of a step.
        first: the step to begin with.
        past: the attempts of the steps before.
        history: the metrics of the steps before, which phases depend on.
        recall: returns the recorded episode of a key, for replay.
        memory: the credit rule's state.
        after: called with each step's result.
        source_state: state of the rollout source after the steps before.
        publish: copies the present weights to external actors; None: the learner's own model
            acts.

    Raises:
        TooManyFaults: most of a step's episodes failed with environment errors.
    """
    known, figured, model = dict(past), list(history), trainer.learner.model

    def sample_groups(step: int) -> list[list[Job]]:
        return groups_of(step, plan, known)

    async def roll_out_step(step: int, jobs: Sequence[Job]) -> list[Episode]:
        return await roll_out(jobs, turns=plan.turns(step), greedy=False)

    source: SynchronousSource | AsynchronousSource = SynchronousSource(
        sample_groups, roll_out_step, plan.staleness, plan.steps
    )
    if plan.asynchronous:
        source = AsynchronousSource(
            sample_groups,
            roll_out_step,
            staleness=plan.staleness,
            tasks=plan.tasks,
            steps=plan.steps,
            together=plan.asynchronous,
            version=first - 1,
            state=source_state,
        )
    async with source:
        for step in range(first, plan.steps + 1):
            started = time.monotonic()
            if _imitates_itself(plan, figured):
                assert plan.consolidation is not None
                updates = consolidate(
                    trainer.learner, known, recall, plan.consolidation, step=step, seed=trainer.seed
                )
                metrics = {"sampled_tokens": 0.0, "prompt_tokens": 0.0, **of_updates(updates)}
                metrics["learn_seconds"] = time.monotonic() - started
                figured.append(metrics)
                if not after(StepResult(step, [], metrics, memory, source.state)):
                    return
                continue
            episodes = learned_from = await source.take(step)
            greedy = (
                await _greedy(roll_out, step, episodes, plan) if trainer.compares_greedy else {}
            )
            acted, version = time.monotonic(), model.version
            if plan.replay:
                policy, seed = model.name, derive_seed("replay", trainer.seed, step)
                learned_from = replayed(episodes, known, recall, plan.shaping, policy, seed=seed)
            known[step] = attempts(episodes)
            work = trainer.learning(step, learned_from, plan.shaping, memory, greedy)
            if publish is None:
                done = await interleave(work, lambda: model.engine.pending > 0)
            else:
                done = await run_in_thread(work)
                await publish()
            updates, memory, more = done
            metrics = figures(episodes, updates, plan.shaping) | more
            if not plan.has_success:
                metrics = {k: v for k, v in metrics.items() if k.partition("/")[0] != "success"}
            metrics["stale"] = _stalest(episodes, model.name, version)
            metrics["rollout_seconds"] = acted - started
            metrics["learn_seconds"] = time.monotonic() - acted
            figured.append(metrics)
            if not after(StepResult(step, episodes, metrics, memory, source.state)):
                return


def _stalest(episodes: Sequence[Episode], policy: str, version: int) -> float:
    """Return the updates of the weights since the policy's oldest token was sampled."""
    calls = [call for e in episodes for call in e.calls if is_of(call.policy, policy)]
    return version - min((v for call in calls for v in call.token_versions), default=version)


def _imitates_itself(plan: ReinforcementPlan, history: Sequence[Mapping[str, float]]) -> bool:
    """Return whether the step after those of `history` is one of self-imitation."""
    if plan.consolidation is None:
        return False
    position = plan.consolidation.schedule.after(history)
    return position is not None and position.kind is PhaseKind.SFT


def groups_of(step: int, plan: ReinforcementPlan, known: Past) -> list[list[Job]]:
    """Return the jobs of one step: `group` of each task, chosen by what was known in time."""
    last = step - 1 - plan.staleness
    past = {number: found for number, found in known.items() if number <= last}
    return [
        [Job(Key(f"{plan.name}/{step}", g, member), task) for member in range(plan.group)]
        for g, task in enumerate(plan.practice.tasks(step, plan.tasks, past))
    ]


async def _greedy(
    roll_out: RollOut, step: int, episodes: Sequence[Episode], plan: ReinforcementPlan
) -> dict[int, float]:
    """Return the return of one greedy rollout of each task of the episodes (ReMax)."""
    own = "" if plan.name == "rl" else f"{plan.name}/"
    jobs = [
        Job(Key(f"{own}greedy/{step}", e.key.group), e.task) for e in episodes if e.key.member == 0
    ]
    found = await roll_out(jobs, turns=plan.turns(step), greedy=True)
    return {e.key.group: plan.shaping.episode_return(e) for e in found if e.outcome.scored}


def figures(episodes: list[Episode], updates: list[Update], shaping: Shaping) -> dict[str, float]:
    """Return the metrics of one step: of its rollouts, and means over its updates.

    Several players have the mean return of each, `return/PLAYER`.
    """
    scored = [e for e in episodes if e.outcome.scored]
    tokens = [own_tokens(episode) for episode in episodes]
    turns = sum(e.usage.turns for e in scored)
    measured = [shaping.measured(e) for e in scored]
    values: dict[str, float] = {
        "success": fmean(e.outcome.solved for e in scored),
        "reward": fmean(shaping.episode_return(e) for e in scored),
        "turns": turns / len(scored),
        "invalid": sum(e.invalid_turns for e in scored) / max(turns, 1),
        "unscored": len(episodes) - len(scored),
        "sampled_tokens": sum(sampled for _, sampled in tokens),
        "prompt_tokens": sum(read for read, _ in tokens),
    }
    families = sorted({e.task.environment for e in scored})
    for family in families if len(families) > 1 else ():
        own = [e.outcome.solved for e in scored if e.task.environment == family]
        values[f"success/{family}"] = fmean(own)
    results = [e.results for e in scored]
    for player in dict.fromkeys(player for of in results for player in of):
        values[f"return/{player}"] = fmean(of[player] for of in results if player in of)
    terms = {f"reward/{t.name}": fmean(m[t.name] for m in measured) for t in shaping.terms}
    return values | terms | of_updates(updates)


def of_updates(updates: Sequence[Update]) -> dict[str, float]:
    """Return means over the updates of a step; sums of tokens."""
    found: dict[str, list[float]] = {}
    for update in updates:
        for name, value in update.figures().items():
            found.setdefault(name, []).append(value)
    return {name: _of_step(name.partition("/")[0], numbers) for name, numbers in found.items()}


def _of_step(name: str, numbers: Sequence[float]) -> float:
    """Return a step's metric from those of its updates."""
    if name in ("tokens", "processed"):
        return float(sum(numbers))
    if name in ("gap", "gap_max"):
        # the first update starts at the sampler's own weights: what remains is arithmetic
        return numbers[0]
    return fmean(numbers)
