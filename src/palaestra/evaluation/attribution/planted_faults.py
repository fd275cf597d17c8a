"""Planted faults: an oracle's episodes with one wrong action, to measure attribution methods.

Up to the fault every action is the oracle's, so only the fault can have lost the episode. After
the fault the oracle continues if it has a plan, else actions are random. If the episode succeeds
in spite of the fault, another fault is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.message import ToolCall
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.rare_capabilities import sample_action, signals_of
from palaestra.core.task import Split, Task
from palaestra.evaluation.attribution.base import Attribution
from palaestra.evaluation.attribution.dependencies import WORD
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory, TurnReplay
from palaestra.evaluation.statistics.intervals import Interval, wilson

TRIES = 24  # faults tried on one task before it is left out
LONGEST = 400  # actions of a reference episode


@dataclass(frozen=True, slots=True)
class Planted:
    """A failed episode with the turn that lost it."""

    episode: Episode
    turn: int
    turns: int  # maximum number of actions


Method = Callable[[Planted, TurnReplay], Attribution]


@dataclass(frozen=True, slots=True)
class Precision:
    """How often one method named the planted turn."""

    right: Interval
    near: Interval  # the planted turn, or a neighbour of it
    silent: int  # episodes for which it named no turn


def plant(env: Environment, task: Task, rng: random.Random, slack: int | None) -> Planted | None:
    """Return a failed episode of `task` with one fault.

    Args:
        env: the task's environment; it is reset.
        task: a task that the oracle solves.
        rng: chooses turn and fault.
        slack: actions allowed beyond the oracle's plan, so that wasted turns lose as well;
            None: the environment's `typical_turns`, with which only irreversible actions lose.

    Returns:
        None if the oracle does not solve the task, or no tried fault loses it.

    Raises:
        CapabilityMissing: the environment has no oracle.
    """
    if Capability.ORACLE not in env.spec.capabilities:
        raise CapabilityMissing(
            f"'{task.environment}' has no oracle, so no fault can be planted in its episodes; "
            "choose an environment with an oracle."
        )
    plan = reference(env, task)
    if not plan:
        return None
    length = len(plan)
    turns = length + slack if slack is not None else max(length, env.spec.typical_turns)
    for _ in range(TRIES):
        turn = rng.randrange(length)
        found = _rollout(env, task, plan[: turn + 1], turns, rng)
        if found is not None and not found.outcome.solved:
            return Planted(found, turn, turns)
    return None


def planted(
    make_env: EnvironmentFactory, tasks: Sequence[Task], *, slack: int | None = None, seed: int = 0
) -> list[Planted]:
    """Return one failed episode for each task in which a fault loses."""
    found = []
    for number, task in enumerate(tasks):
        env = make_env(task.environment)
        try:
            one = plant(env, task, random.Random(f"{seed} {task.id}"), slack)
        finally:
            env.close()
        if one is not None:
            key = Key("planted", number)
            found.append(replace(one, episode=replace(one.episode, key=key)))
    return found


def precision(
    make_env: EnvironmentFactory, cases: Sequence[Planted], methods: Mapping[str, Method]
) -> dict[str, Precision]:
    """Measure how often each method names the planted turn.

    Raises:
        InputError: there is no case.
    """
    if not cases:
        raise InputError(
            "No fault loses any of these tasks; use more tasks, or fewer turns (--slack 0)."
        )
    right: dict[str, list[bool]] = {name: [] for name in methods}
    near: dict[str, list[bool]] = {name: [] for name in methods}
    silent = dict.fromkeys(methods, 0)
    for case in cases:
        with TurnReplay.of(case.episode, make_env) as replay:
            for name, method in methods.items():
                turn = method(case, replay).turn
                silent[name] += turn is None
                right[name].append(turn == case.turn)
                near[name].append(turn is not None and abs(turn - case.turn) <= 1)
    n = len(cases)
    return {
        name: Precision(wilson(sum(right[name]), n), wilson(sum(near[name]), n), silent[name])
        for name in methods
    }


def fresh_tasks(environment: str, count: int, make_env: EnvironmentFactory) -> list[Task]:
    """Return the first `count` training tasks of an environment."""
    env = make_env(environment)
    try:
        return env.tasks(environment).take(Split.TRAIN, count)
    finally:
        env.close()


def reference(env: Environment, task: Task) -> list[Action]:
    """Return the oracle's actions for a task; empty if it does not solve the task."""
    env.reset(task)
    done: list[Action] = []
    while len(done) < LONGEST:
        plan = env.oracle()
        if not plan:
            return []
        for action in plan:
            done.append(action)
            transition = env.step(action)
            if transition.terminated or transition.truncated:
                return done if transition.success else []
    return []


def references(make_env: EnvironmentFactory, tasks: Sequence[Task]) -> dict[str, list[Action]]:
    """Return task id to the oracle's actions, for the solved tasks; all of one environment."""
    env = make_env(tasks[0].environment)
    try:
        found = {task.id: reference(env, task) for task in tasks}
    finally:
        env.close()
    return {id: plan for id, plan in found.items() if plan}


# ── details ──────────────────────────────────────────────────────────────────


def _rollout(
    env: Environment, task: Task, plan: Sequence[Action], turns: int, rng: random.Random
) -> Episode | None:
    """Roll out the oracle's `plan` with a wrong action in place of its last one."""
    first = env.reset(task)
    seen, steps, after = [first.text], list[Step](), list[Action]()
    outcome = Outcome.truncated(Limit.TURNS)
    while len(steps) < turns:
        before = signals_of(env)
        if len(steps) < len(plan) - 1:
            action = plan[len(steps)]
        elif len(steps) == len(plan) - 1:
            wrong = _wrong(env, plan[-1], rng, seen)
            if wrong is None:
                return None
            action = wrong
        else:
            after = after or list(env.oracle()) or [sample_action(env, rng)]
            action = after.pop(0)
        transition = env.step(action)
        steps.append(Step(len(steps), None, action, transition, before))
        seen.append(transition.observation.text)
        if transition.terminated or transition.truncated:
            outcome = Outcome.failure()
            if transition.success:
                outcome = Outcome.success()
            elif transition.truncated:
                outcome = Outcome.truncated(Limit.ENVIRONMENT)
            break
    usage = Usage(turns=len(steps))
    return Episode(Key("planted", 0), task, "oracle", first, (), tuple(steps), outcome, usage)


def _wrong(
    env: Environment, right: Action, rng: random.Random, seen: Sequence[str]
) -> Action | None:
    """Return another action than the oracle's: its call with one argument changed, or a sample."""
    for _ in range(TRIES):
        if right.call is not None and right.call.arguments and rng.random() < 0.5:
            action = _changed(right.call, rng, seen)
        else:
            action = sample_action(env, rng)
        if (action.text, action.call) != (right.text, right.call):
            return action
    return None


def _changed(call: ToolCall, rng: random.Random, seen: Sequence[str]) -> Action:
    """Change one argument of a call: to a neighbouring number, or to another word seen before."""
    name = rng.choice(sorted(call.arguments))
    value = call.arguments[name]
    other: object = value
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, int):
        other = value + rng.choice((-1, 1))
    elif isinstance(value, float):
        other = value + rng.choice((-1.0, 1.0))
    elif isinstance(value, str):
        words = sorted({w for text in seen for w in WORD.findall(text)} - {value})
        other = rng.choice(words or ["another"])
    changed = ToolCall(call.name, {**call.arguments, name: other})
    return Action(str(changed), changed)
