"""The reinforcement-learning loop: roll out, credit, learn, again.

One step draws tasks, lives a group of rollouts of each with the present policy,
compares each rollout with its siblings, and moves the weights a few times. The
loop holds no state but the step number, the learner and what the credit rule
remembers: everything else is derived from seeds, so a resumed run goes on exactly.
With `staleness` k, rollouts are trained on up to k steps after they were begun; an
`asynchronous` run lives them while the learner works (see `flow`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Protocol

from palaestra.core.episode import Episode, Key
from palaestra.core.journal import derive_seed
from palaestra.learning.consolidation import ConsolidationPlan, consolidate
from palaestra.learning.curricula.practice import Past, Practice, attempts, replayed
from palaestra.learning.flow import Ahead, Flow, FlowState
from palaestra.learning.learner import Update
from palaestra.learning.phases import PhaseKind
from palaestra.learning.pieces import alternately, beside
from palaestra.learning.rewards import Shaping
from palaestra.learning.study import Study, StudyPlan
from palaestra.rollout.runner import Job


@dataclass(frozen=True, slots=True)
class ReinforcementPlan:
    """What one run of the loop does."""

    steps: int
    practice: Practice  # which tasks
    tasks: int  # so many per step
    group: int  # rollouts per task
    shaping: Shaping
    study: StudyPlan
    staleness: int = 0  # steps between beginning a rollout and learning from it
    asynchronous: int = 0  # groups lived at once while the learner works; 0: in turns with it
    replay: bool = False  # stored successes stand in where a group is hopeless (ARPO)
    consolidation: ConsolidationPlan | None = None  # steps of self-imitation in between
    turns: Callable[[int], int | None] = field(default=lambda step: None)
    """Turns per episode at a step (1-based); None leaves the rollout's own."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did: its number, its rollouts, and the figures to log."""

    step: int  # 1-based
    episodes: list[Episode]
    metrics: dict[str, float]
    memory: Mapping[str, float]  # what the credit rule remembers; a resumed run needs it
    flow: FlowState  # where the flow of rollouts stands; likewise


class Live(Protocol):
    """Makes the episodes of a step: `Rollout.run`, or something around it."""

    async def __call__(
        self, jobs: Sequence[Job], *, turns: int | None, greedy: bool
    ) -> list[Episode]: ...


async def reinforce(
    study: Study,
    live: Live,
    plan: ReinforcementPlan,
    *,
    first: int,
    past: Past,
    history: Sequence[Mapping[str, float]],
    recall: Callable[[Key], Episode | None],
    memory: Mapping[str, float],
    after: Callable[[StepResult], bool],
    flow: FlowState | None = None,
    publish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run steps `first` to `plan.steps` (1-based); `after` a step says whether to go on.

    Args:
        study: what the learner does with a step's rollouts.
        live: makes the rollouts.
        plan: what a step consists of.
        first: the step to begin with.
        past: what is remembered of the rollouts of the steps before.
        history: the figures of the steps before, which phases depend on.
        recall: the recorded episode of a key, for replay.
        memory: what the credit rule remembers.
        after: called with each step's result.
        flow: where the flow of rollouts stood after the steps before.
        publish: makes those who act elsewhere act with the weights as they are now; None: the
            learner's own model acts.

    Raises:
        TooManyFaults: most of a step's episodes broke through no fault of the agent.
    """
    known, figured, model = dict(past), list(history), study.learner.model

    def draw(step: int) -> list[list[Job]]:
        return groups_of(step, plan, known)

    async def lived(step: int, jobs: Sequence[Job]) -> list[Episode]:
        return await live(jobs, turns=plan.turns(step), greedy=False)

    source: Ahead | Flow = Ahead(draw, lived, plan.staleness, plan.steps)
    if plan.asynchronous:
        source = Flow(
            draw,
            lived,
            staleness=plan.staleness,
            tasks=plan.tasks,
            steps=plan.steps,
            together=plan.asynchronous,
            version=first - 1,
            state=flow,
        )
    async with source:
        for step in range(first, plan.steps + 1):
            started = time.monotonic()
            if _imitates_itself(plan, figured):
                assert plan.consolidation is not None
                updates = consolidate(
                    study.learner, known, recall, plan.consolidation, step=step, seed=study.seed
                )
                metrics = {"sampled_tokens": 0.0, "prompt_tokens": 0.0, **of_updates(updates)}
                metrics["learn_seconds"] = time.monotonic() - started
                figured.append(metrics)
                if not after(StepResult(step, [], metrics, memory, source.state)):
                    return
                continue
            episodes = studied = await source.take(step)
            greedy = await _greedy(live, step, episodes, plan) if study.compares_greedy else {}
            acted, version = time.monotonic(), model.version
            if plan.replay:
                policy, seed = model.name, derive_seed("replay", study.seed, step)
                studied = replayed(episodes, known, recall, plan.shaping, policy, seed=seed)
            known[step] = attempts(episodes)
            work = study.learning(step, studied, plan.shaping, memory, greedy)
            if publish is None:
                done = await alternately(work, lambda: model.engine.pending > 0)
            else:
                done = await beside(work)
                await publish()
            updates, memory, more = done
            metrics = figures(episodes, updates, plan.shaping) | more
            metrics["stale"] = _stalest(episodes, model.name, version)
            metrics["rollout_seconds"] = acted - started
            metrics["learn_seconds"] = time.monotonic() - acted
            figured.append(metrics)
            if not after(StepResult(step, episodes, metrics, memory, source.state)):
                return


def _stalest(episodes: Sequence[Episode], policy: str, version: int) -> float:
    """Updates of the weights since the oldest token of the policy was sampled."""
    calls = [call for e in episodes for call in e.calls if call.policy == policy]
    return version - min((v for call in calls for v in call.token_versions), default=version)


def _imitates_itself(plan: ReinforcementPlan, history: Sequence[Mapping[str, float]]) -> bool:
    """Whether the step after those of `history` is one of self-imitation."""
    if plan.consolidation is None:
        return False
    position = plan.consolidation.schedule.after(history)
    return position is not None and position.kind is PhaseKind.SFT


def groups_of(step: int, plan: ReinforcementPlan, known: Past) -> list[list[Job]]:
    """The rollouts of one step: `group` of each task, chosen by what was known in time."""
    last = step - 1 - plan.staleness
    past = {number: found for number, found in known.items() if number <= last}
    return [
        [Job(Key(f"rl/{step}", g, member), task) for member in range(plan.group)]
        for g, task in enumerate(plan.practice.tasks(step, plan.tasks, past))
    ]


async def _greedy(
    live: Live, step: int, episodes: Sequence[Episode], plan: ReinforcementPlan
) -> dict[int, float]:
    """The return of one greedy rollout of each task of the episodes (ReMax)."""
    jobs = [Job(Key(f"greedy/{step}", e.key.group), e.task) for e in episodes if e.key.member == 0]
    found = await live(jobs, turns=plan.turns(step), greedy=True)
    return {e.key.group: plan.shaping.episode_return(e) for e in found if e.outcome.scored}


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
    return values | of_updates(updates)


def of_updates(updates: Sequence[Update]) -> dict[str, float]:
    """Means over the updates of a step; sums of tokens."""
    if not updates:
        return {}
    values = {
        name: fmean(getattr(update, name) for update in updates) for name in asdict(updates[0])
    }
    for name in ("tokens", "processed"):
        values[name] *= len(updates)
    # the first update starts at the sampler's own weights: what remains is arithmetic
    values["gap"], values["gap_max"] = updates[0].gap, updates[0].gap_max
    return values
