"""Branches: what recorded turns were truly worth, by living on from them many times.

A recorded episode is replayed up to a turn in a fresh world (worlds are deterministic,
and an interrupted record is lived again without a model), and a policy finishes it
N times. The mean return is the value V of that state, and

    advantage of turn k = V(state after turn k) - V(state before turn k)

with the recorded return itself as the value after the last turn. Values are those of
the policy that finishes, which need not be the one that was recorded. States with
equal pasts (the start of a group, say) are lived once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, variance

import torch

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.journal import Event, derive_seed
from palaestra.core.task import Task
from palaestra.experiment import machine
from palaestra.experiment.plan import plan_of
from palaestra.experiment.policy import build_policy, selection
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import Recipe, check
from palaestra.experiment.run import origin
from palaestra.experiment.setting import Setting
from palaestra.experiment.trace import Trace
from palaestra.learning.comparison import Estimate
from palaestra.learning.rewards import Shaping
from palaestra.models.resident import ResidentModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.store import checkpoint
from palaestra.store.header import events_in_order
from palaestra.store.run import RunFolder


@dataclass(frozen=True, slots=True)
class State:
    """Where a branch starts: a task, and what had happened in it."""

    number: int  # within the plan
    task: Task
    past: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which states to live on from, and which turns they surround."""

    states: tuple[State, ...]
    ways: Mapping[int, tuple[int, ...]]  # rollout -> numbers of the states before its turns


def plan(trace: Trace, samples: int, budget: int) -> Plan:
    """Whole rollouts in random order, as long as their states, `samples` times each, fit.

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
    ways: dict[int, tuple[int, ...]] = {}
    for index in order:
        fresh = dict(states)
        numbers: list[int] = []
        for name, task, past in _states(trace, index):
            state = fresh.setdefault(name, State(len(fresh), task, past))
            numbers.append(state.number)
        if len(fresh) * samples > budget:
            break
        states, ways[index] = fresh, tuple(numbers)
    if not ways:
        least = len(trace.batch[order[0]].turns) * samples
        raise InputError(
            f"A budget of {budget} episodes does not cover one rollout at {samples} per turn; "
            f"set --budget {least} or more, or --truth lower."
        )
    return Plan(tuple(states.values()), ways)


async def values(
    rollout: Rollout, states: Sequence[State], samples: int, shaping: Shaping
) -> dict[int, Estimate]:
    """The value of each state, by number: the mean return of `samples` episodes through it.

    The return is that of the whole episode, its past included. States of which fewer than
    two episodes had a valid result are missing.

    Args:
        rollout: how episodes are lived; its store is not used.
        states: of a plan.
        samples: episodes per state.
        shaping: gives the return.

    Raises:
        InputError: a world does not repeat its past.
        TooManyFaults: most episodes broke through no fault of the agent.
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
    trace: Trace, ways: Mapping[int, Sequence[int]], value: Mapping[int, Estimate]
) -> dict[tuple[Key, int], Estimate]:
    """What each measured turn added, by rollout and position."""
    found: dict[tuple[Key, int], Estimate] = {}
    for index, numbers in ways.items():
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
        the advantages, and which policy it was.

    Raises:
        InputError: the run is no training run, has no checkpoint, or is out of budget.
    """
    stored = run.database.get("recipe")
    if not isinstance(stored, dict) or "rl" not in stored:
        raise InputError(f"'{run.path}' is not a training run, so it has no policy to branch with.")
    recipe = check(stored)
    chosen = plan(trace, samples, budget)
    torch.set_num_threads(machine.torch_threads())
    setting = Setting(recipe, run, reporter)
    setting.policy, name = latest_policy(recipe, run, origin(recipe, run, reporter))
    setting.policy.name = trace.policy  # it takes over whoever's conversation was recorded
    lived = 0
    total = samples * len(chosen.states)
    async with setting.started():
        with reporter.stage("branches", total, "episodes") as shown:

            def count(episode: Episode) -> None:
                nonlocal lived
                lived += 1
                shown.show(lived, {"states": str(len(chosen.states))})

            rollout = setting.rollout({"agent": setting.policy}, _turns(setting, trace), count)
            value = await values(rollout, chosen.states, samples, trace.shaping)
    return advantages(trace, chosen.ways, value), name


def latest_policy(recipe: Recipe, run: RunFolder, start: Path) -> tuple[ResidentModel, str]:
    """The policy as the run's latest sound checkpoint holds it, and that checkpoint's name.

    Raises:
        InputError: there is no checkpoint yet.
    """
    found = checkpoint.latest(run.checkpoints)
    if found is None:
        raise InputError(
            f"The run {run.path} has no checkpoint to branch with; go on with it first: "
            f"palaestra train --resume {run.path}"
        )
    policy = build_policy(recipe, start)
    weights = found.tensors["weights"]
    with torch.no_grad():
        for name, parameter in selection(policy, recipe).parameters.items():
            parameter.copy_(weights[name])
    policy.version = found.state["version"]
    return policy, found.name


# ── details ──────────────────────────────────────────────────────────────────


def _states(trace: Trace, index: int) -> list[tuple[int, Task, tuple[Event, ...]]]:
    """The states before each turn of a rollout: a name that equal pasts share, task, past."""
    episode, starts = trace.episodes[index], {turn.call for turn in trace.batch[index].turns}
    task = episode.task
    name = derive_seed(task.environment, task.seed, task.id, sorted(task.parameters.items()))
    found: list[tuple[int, Task, tuple[Event, ...]]] = []
    events = events_in_order(episode)
    for position, event in enumerate(events):
        if isinstance(event, Call) and event.index in starts:
            found.append((name, task, tuple(events[:position])))
        happened = (
            (event.role, event.parent, event.messages, event.reply, event.completion)
            if isinstance(event, Call)
            else event.action
        )
        name = derive_seed(name, happened)
    return found


def _turns(setting: Setting, trace: Trace) -> int:
    """The most turns that the trace's episodes could take."""
    kind, _, step = trace.phase.partition("/")
    own = plan_of(setting).turns(int(step)) if kind == "rl" and step.isdecimal() else None
    return own or trace.shaping.most_turns


class _Pasts:
    """A store in which every branch is an interrupted episode, and nothing is kept."""

    def __init__(self, states: Mapping[int, State]) -> None:
        self._states = states

    def past(self, key: Key) -> list[Event]:
        return list(self._states[key.group].past)

    def episode(self, key: Key) -> Episode | None:
        return None

    def append(self, key: Key, event: Event) -> None:
        """The branch is lived once; its events are in its episode."""

    def finish(self, episode: Episode) -> None:
        """Likewise."""

    def forget(self, key: Key) -> None:
        task = self._states[key.group].task
        raise InputError(
            f"'{task.environment}' ({task.id}) does not repeat its recorded past, so it cannot "
            "branch; leave --truth out."
        )
