"""Branch values: Monte Carlo estimates of what recorded turns were worth.

A recorded episode is replayed up to a turn in a new environment (environments are
deterministic, and recorded model calls are not made again), and a policy finishes it
N times. The mean return is the value V of that state, and

    advantage of turn k = V(state after turn k) - V(state before turn k)

with the recorded return as the value after the last turn. Values are those of the
policy that finishes, which may differ from the recorded one. States with equal pasts
(such as the start of a group) are estimated once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, variance

import torch

from palaestra.core.episode import Episode, Event, Key, derive_seed
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.task import Task
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.methods.credit_comparison import Estimate
from palaestra.models.local.resident import ResidentModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.runtime import machine
from palaestra.runtime.progress import Reporter
from palaestra.store import checkpoint
from palaestra.store.header import events_in_order
from palaestra.store.run_folder import RunFolder
from palaestra.training.loop_plan import plan_of
from palaestra.training.policy_building import build_policy, put_state, selection
from palaestra.training.recipe import Recipe, read_recorded
from palaestra.training.run import origin
from palaestra.training.run_context import RunContext
from palaestra.training.trace import Trace


@dataclass(frozen=True, slots=True)
class State:
    """The start of a branch: a task, and the events before it."""

    number: int  # within the plan
    task: Task
    past: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The states to branch from, and the turns that they surround."""

    states: tuple[State, ...]
    paths: Mapping[int, tuple[int, ...]]  # rollout -> numbers of the states before its turns


def plan(trace: Trace, samples: int, budget: int) -> Plan:
    """Plan whole rollouts in random order while their states, `samples` times each, fit.

    Args:
        trace: the rollouts.
        samples: episodes per state, at least 2.
        budget: episodes in all.

    Raises:
        InputError: the budget is too small for the first rollout.
    """
    order = list(range(len(trace.batch)))
    random.Random(f"{trace.phase}/{samples}").shuffle(order)
    states: dict[int, State] = {}
    paths: dict[int, tuple[int, ...]] = {}
    for index in order:
        fresh = dict(states)
        numbers: list[int] = []
        for name, task, past in _states(trace, index):
            state = fresh.setdefault(name, State(len(fresh), task, past))
            numbers.append(state.number)
        if len(fresh) * samples > budget:
            break
        states, paths[index] = fresh, tuple(numbers)
    if not paths:
        least = len(trace.batch[order[0]].turns) * samples
        raise InputError(
            f"A budget of {budget} episodes does not cover one rollout with {samples} per turn; "
            f"set --budget to {least} or more, or lower --truth."
        )
    return Plan(tuple(states.values()), paths)


async def values(
    rollout: Rollout, states: Sequence[State], samples: int, shaping: Shaping
) -> dict[int, Estimate]:
    """Estimate the value of each state, by number: the mean return of `samples` episodes.

    The return is that of the whole episode, past included. States with fewer than two valid
    episodes are missing.

    Args:
        rollout: settings of the rollouts; its store is not used.
        states: of a plan.
        samples: episodes per state.
        shaping: gives the return.

    Raises:
        InputError: an environment does not repeat its recorded past.
        TooManyFaults: most episodes failed for reasons other than the agent.
    """
    jobs = [
        Job(Key("truth", state.number, member), state.task)
        for state in states
        for member in range(samples)
    ]
    branching = replace(rollout, store=_Pasts({state.number: state for state in states}))
    returns: dict[int, list[float]] = {}
    for episode in await branching.run(jobs):
        if episode.outcome.scored:
            earned = shaping.episode_return(episode)
            returns.setdefault(episode.key.group, []).append(earned)
    return {
        number: Estimate(fmean(found), (variance(found) / len(found)) ** 0.5)
        for number, found in returns.items()
        if len(found) > 1
    }


def advantages(
    trace: Trace, paths: Mapping[int, Sequence[int]], value: Mapping[int, Estimate]
) -> dict[tuple[Key, int], Estimate]:
    """Return the advantage of each measured turn, by rollout and position."""
    found: dict[tuple[Key, int], Estimate] = {}
    for index, numbers in paths.items():
        trajectory = trace.batch[index]
        end = Estimate(trajectory.total, 0.0)
        around = [*(value.get(number) for number in numbers), end]
        for turn, (before, after) in enumerate(pairwise(around)):
            if before is not None and after is not None:
                error = (before.error**2 + after.error**2) ** 0.5
                found[trajectory.key, turn] = Estimate(after.mean - before.mean, error)
    return found


async def ground_truth(
    run: RunFolder, trace: Trace, samples: int, budget: int, reporter: Reporter
) -> tuple[dict[tuple[Key, int], Estimate], str]:
    """Measure the turns of a trace with the latest policy of its run.

    Returns:
        the advantages, and the name of the checkpoint.

    Raises:
        InputError: the run is no training run, has no checkpoint, or the budget is too small.
    """
    stored = run.database.get("recipe")
    if not isinstance(stored, dict) or "rl" not in stored:
        raise InputError(
            f"'{run.path}' is no training run and has no policy to branch with; leave --truth out."
        )
    recipe = read_recorded(stored)
    chosen = plan(trace, samples, budget)
    torch.set_num_threads(machine.torch_threads())
    context = RunContext(recipe, run, reporter)
    context.policy, name = latest_policy(recipe, run, origin(recipe, run, reporter))
    context.policy.name = trace.policy  # it continues conversations recorded under this name
    finished = 0
    total = samples * len(chosen.states)
    async with context.started():
        with reporter.stage("branches", total, "episodes") as shown:

            def count(episode: Episode) -> None:
                nonlocal finished
                finished += 1
                shown.show(finished, {"states": str(len(chosen.states))})

            rollout = context.rollout(context.roles(context.policy), _turns(context, trace), count)
            value = await values(rollout, chosen.states, samples, trace.shaping)
    return advantages(trace, chosen.paths, value), name


def latest_policy(recipe: Recipe, run: RunFolder, start: Path) -> tuple[ResidentModel, str]:
    """Return the policy of the run's latest valid checkpoint, and the checkpoint's name.

    Raises:
        InputError: there is no checkpoint yet.
    """
    found = checkpoint.latest(run.checkpoints)
    if found is None:
        raise InputError(
            f"The run {run.path} has no checkpoint to branch with; resume it first: "
            f"palaestra train --resume {run.path}"
        )
    policy = build_policy(recipe, start)
    weights = found.tensors["weights"]
    with torch.no_grad():
        for name, parameter in selection(policy, recipe).parameters.items():
            parameter.copy_(weights[name])
    put_state(policy, found.state)
    return policy, found.name


# ── details ──────────────────────────────────────────────────────────────────


def _states(trace: Trace, index: int) -> list[tuple[int, Task, tuple[Event, ...]]]:
    """Return each turn's state in a rollout: a name that equal pasts share, task, past."""
    episode, starts = trace.episodes[index], {turn.call for turn in trace.batch[index].turns}
    task = episode.task
    name = derive_seed(task.environment, task.seed, task.id, sorted(task.parameters.items()))
    found: list[tuple[int, Task, tuple[Event, ...]]] = []
    events = events_in_order(episode)
    for position, event in enumerate(events):
        if isinstance(event, Call) and event.index in starts:
            found.append((name, task, tuple(events[:position])))
        content = (
            (event.role, event.parent, event.messages, event.reply, event.completion)
            if isinstance(event, Call)
            else event.action
        )
        name = derive_seed(name, content)
    return found


def _turns(context: RunContext, trace: Trace) -> int:
    """Return the turn limit of the trace's episodes."""
    kind, _, step = trace.phase.rpartition("/")
    own = plan_of(context).turns(int(step)) if kind == "rl" and step.isdecimal() else None
    return own or trace.shaping.most_turns


class _Pasts:
    """A store that presents every branch as an interrupted episode and keeps nothing."""

    def __init__(self, states: Mapping[int, State]) -> None:
        self._states = states

    def past(self, key: Key) -> list[Event]:
        return list(self._states[key.group].past)

    def episode(self, key: Key) -> Episode | None:
        return None

    def append(self, key: Key, event: Event) -> None:
        """Keep nothing: a branch runs once, and its episode holds its events."""

    def finish(self, episode: Episode) -> None:
        """Keep nothing."""

    def forget(self, key: Key) -> None:
        task = self._states[key.group].task
        raise InputError(
            f"'{task.environment}' ({task.id}) does not repeat its recorded past, so it cannot "
            "branch; leave --truth out."
        )
