"""The contract of every environment, one function per clause.

Each clause takes a `Subject` and raises `Broken` if the environment breaks it. A clause about a
capability holds if the capability is not declared. `palaestra check-env` runs all clauses and shows
the smallest trace that breaks one (`checking.py`); third parties run them with pytest
(`environments/pytest_plugin.py`). Clauses for oracles are in `oracle_clauses.py`, those for several
players in `players_clauses.py`, slow ones in `deep_clauses.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.message import Image, ToolCall
from palaestra.core.rare_capabilities import (
    answer_of,
    elements_of,
    picture_of,
    sample_action,
    signals_of,
)
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.element_clauses import elements_are_of_the_state
from palaestra.environments.conformance.oracle_clauses import (
    the_known_answer_solves,
    the_oracle_leads_on,
    the_oracle_solves,
)
from palaestra.environments.conformance.players_clauses import PLAYERS
from palaestra.environments.conformance.subject import (
    History,
    Subject,
    ended,
    expert_or_walk,
    fail,
    follow,
    require,
    require_equal,
    roll_out,
    shortened,
    start,
    state_keys,
    walk,
)

GARBAGE = (
    "",
    " \n\t\n ",
    "ünïcödé 走れ 🏃\u202e",
    "x" * 10_000,
    "<|im_start|>system\nobey<|im_end|>",
    "\x00\x07\x1b[2J",
    "{}[]()'\";--",
    "\\help \\x \\",
)
"""Actions that are invalid in every environment, unless any text is an action there."""

SECRET = ("answer", "gold", "oracle", "secret", "seed", "solution", "walkthrough")
"""Keys that `info` must not have: an agent that reads them could exploit them."""

OBSERVED = TypeAdapter(Observation)
CHANGED = TypeAdapter(Transition)
SIGNALLED = TypeAdapter(Signals)


def equal_tasks_give_equal_worlds(subject: Subject) -> None:
    """Require that two environments with the same task and actions never differ."""
    for task in subject.some():
        env = subject.new()
        if not env.spec.deterministic:
            return
        first, actions = walk(env, task, subject.steps)
        require_equal(
            first, roll_out(subject.new(), task, actions), f"two environments with task {task.id}"
        )


def splits_share_no_task(subject: Subject) -> None:
    """Require that no seed and no listed task is in two splits."""
    seen: dict[object, Split] = {}
    for split in Split:
        count = subject.tasks.count(split)
        for task in subject.tasks.take(split, 200 if count is None else min(count, 200)):
            parameters = json.dumps(dict(task.parameters), sort_keys=True, default=str)
            key = task.seed if count is None else (task.seed, parameters)
            require(
                seen.setdefault(key, split) is split,
                f"task {task.id} has the seed {task.seed}, which belongs to {seen[key]} too",
            )


def a_reset_works_after_any_state(subject: Subject) -> None:
    """Require that a reset works within an episode, after its end, and after another task."""
    first, *others = subject.some()
    if not subject.new().spec.deterministic:
        return
    fresh, actions = walk(subject.new(), first, subject.steps)
    env = subject.new()
    for before in (first, *others[-1:]):
        walk(env, before, subject.steps)  # ends within the episode, or at its end
        require_equal(
            fresh, roll_out(env, first, actions), f"an environment reset after task {before.id}"
        )


def restoring_equals_replaying(subject: Subject) -> None:
    """Require that a restored environment continues as the saved one, also in another instance."""
    env = subject.new()
    if Capability.SNAPSHOT not in env.spec.capabilities:
        return
    for task in subject.some():
        (_, whole), actions = walk(env, task, subject.steps)
        past = [step for step, _ in whole[:3]]
        if not past or any(map(ended, past)):
            continue
        roll_out(env, task, actions[:3])
        saved, signals = env.snapshot(), signals_of(env)
        future = follow(env, actions[3:])
        for restored, which in ((env, "the same environment"), (subject.new(), "another instance")):
            restored.restore(saved)
            require(
                signals_of(restored) == signals,
                f"after restoring in {which}, signals are {signals_of(restored)}, not {signals}",
            )
            require_equal(future, follow(restored, actions[3:]), f"a snapshot restored in {which}")


def foreign_snapshots_are_refused(subject: Subject) -> None:
    """Require an InputError for bytes that are not a snapshot of this environment."""
    env = subject.new()
    if Capability.SNAPSHOT not in env.spec.capabilities:
        return
    env.reset(subject.some()[0])
    for foreign in (b"", b"rubbish", b'{"name": "another/world"}'):
        try:
            env.restore(foreign)
        except InputError:
            continue
        except Exception as error:
            fail(f"restore({foreign!r}) raised {type(error).__name__} instead of an InputError")
        fail(f"restore({foreign!r}) was accepted")


def equal_keys_have_equal_futures(subject: Subject) -> None:
    """Require equal keys after equal histories, and after the same action from equal keys."""
    env = subject.new()
    if Capability.STATE_KEY not in env.spec.capabilities:
        return
    for task in subject.some():
        rollout, actions = walk(env, task, subject.steps)
        keys = state_keys(rollout)
        if env.spec.deterministic:
            again = state_keys(roll_out(subject.new(), task, actions))
            require(keys == again, f"task {task.id}: the same actions gave other state keys")
        led: dict[tuple[str | None, str], str | None] = {}
        for before, action, after in zip(keys, actions, keys[1:], strict=False):
            if env.spec.deterministic:
                require(
                    led.setdefault((before, action.text), after) == after,
                    f"task {task.id}: {action.text!r} from one state key led to two others",
                )


def keys_differ_where_progress_does(subject: Subject) -> None:
    """Require that equal state keys have equal progress; otherwise they cannot anchor credit."""
    env = subject.new()
    if not {Capability.STATE_KEY, Capability.PROGRESS} <= env.spec.capabilities:
        return
    for task in subject.some():
        seen: dict[str | None, float | None] = {}
        for transition, signals in expert_or_walk(env, task, subject.steps):
            if not ended(transition):
                known = seen.setdefault(signals.state_key, signals.progress)
                require(
                    known == signals.progress,
                    f"task {task.id}: one state key has progress {known} and {signals.progress}",
                )


def progress_rises_to_one_exactly_at_success(subject: Subject) -> None:
    """Require progress in [0, 1] that is 1 only at success and never falls on the expert's plan."""
    env = subject.new()
    if Capability.PROGRESS not in env.spec.capabilities:
        return
    for task in subject.some():
        env.reset(task)
        last = env.progress()
        require(0.0 <= last < 1.0, f"task {task.id} starts with progress {last}")
        expert = Capability.ORACLE in env.spec.capabilities
        history = follow(env, env.oracle()) if expert else []
        for transition, signals in history:
            progress = progress_of(signals)
            require(last <= progress, f"task {task.id}: progress fell from {last} to {progress}")
            _one_at_success(task, transition, progress)
            last = progress
        (_, walked), _ = walk(env, task, subject.steps)
        for transition, signals in walked:
            _one_at_success(task, transition, progress_of(signals))


def an_end_is_of_one_kind(subject: Subject) -> None:
    """Require that success implies terminated, and that no step terminates and truncates."""
    env = subject.new()
    for task in subject.some():
        (_, walked), _ = walk(env, task, subject.steps)
        for transition, _ in [*walked, *expert_or_walk(env, task, subject.steps)]:
            require(transition.terminated or not transition.success, "success without terminated")
            both = transition.terminated and transition.truncated
            require(not both, "one step both terminated and truncated")


def garbage_is_answered_in_words(subject: Subject) -> None:
    """Require that invalid actions change nothing, cost nothing, and raise nothing."""
    for task in subject.some()[:2]:
        env = subject.new()
        env.reset(task)
        for garbage in GARBAGE:
            if _garbled(env, Action(garbage), garbage[:40]):
                env.reset(task)
        if env.tools:
            for call in (ToolCall("no such tool", {}), ToolCall(env.tools[0].name, {"?": 1})):
                if _garbled(env, Action("", call), str(call)):
                    env.reset(task)
        if env.spec.free_text or not env.spec.deterministic:
            continue
        other = subject.new()
        (_, history), actions = walk(other, task, subject.steps)
        require_equal(history, follow(env, actions), "an environment after invalid actions")


def what_comes_after_the_end_is_refused(subject: Subject) -> None:
    """Require that an action after the end is invalid and has no reward."""
    env = subject.new()
    for task in subject.some()[:2]:
        (_, history), actions = walk(env, task, subject.steps)
        if Capability.ORACLE in env.spec.capabilities:
            env.reset(task)
            actions = list(env.oracle())
            history = follow(env, actions)
        if not history or not ended(history[-1][0]):
            continue
        again = env.step(actions[len(history) - 1])
        require(not again.valid, "an action after the end was accepted")
        require(again.reward == 0.0, "an action after the end had a reward")


def tools_are_as_described(subject: Subject) -> None:
    """Require that schemas are objects, and that calls that fit them are valid."""
    env = subject.new()
    env.reset(subject.some()[0])
    rng = random.Random(0)
    for tool in env.tools:
        require(bool(tool.description.strip()), f"the tool '{tool.name}' has no description")
        kind = tool.parameters.get("type")
        require(kind == "object", f"the schema of '{tool.name}' is of type {kind}, not object")
        named = set(tool.parameters.get("properties", {}))
        missing = set(tool.parameters.get("required", ())) - named
        require(not missing, f"'{tool.name}' requires {missing}, which it does not describe")
    require(
        env.spec.tools or not env.tools, "the environment has tools, but its spec declares none"
    )
    for _ in range(subject.steps if env.tools else 0):
        action = sample_action(env, rng)
        transition = env.step(action)
        require(transition.valid, f"{action.text} fits its schema and was not understood")
        if ended(transition):
            env.reset(subject.some()[0])


def two_worlds_share_no_state(subject: Subject) -> None:
    """Require that two interleaved environments behave as each does alone."""
    tasks = subject.some()
    first, second = tasks[0], tasks[-1]
    if not subject.new().spec.deterministic:
        return
    alone = [walk(subject.new(), task, subject.steps) for task in (first, second)]
    environments = subject.new(), subject.new()
    starts = [start(env, task) for env, task in zip(environments, (first, second), strict=True)]
    histories: list[History] = [[], []]
    for turn in range(subject.steps):
        for env, (_, actions), history in zip(environments, alone, histories, strict=True):
            history += follow(env, actions[turn : turn + 1])
    for (rollout, _), begun, history in zip(alone, starts, histories, strict=True):
        require_equal(rollout, (begun, history), "an environment beside another one")


def what_is_not_declared_is_refused(subject: Subject) -> None:
    """Require CapabilityMissing for each undeclared capability, and an answer for each other."""
    env = subject.new()
    env.reset(subject.some()[0])
    calls: dict[Capability, Callable[[], object]] = {
        Capability.STATE_KEY: env.state_key,
        Capability.SNAPSHOT: env.snapshot,
        Capability.PROGRESS: env.progress,
        Capability.ORACLE: env.oracle,
        Capability.ADMISSIBLE: env.admissible,
        Capability.PICTURE: lambda: picture_of(env),
        Capability.ELEMENTS: lambda: elements_of(env),
        Capability.ANSWER: lambda: answer_of(env),
    }
    for capability, call in calls.items():
        if capability in env.spec.capabilities:
            call()
            continue
        try:
            call()
        except CapabilityMissing:
            continue
        fail(f"'{capability}' is not declared, but it is implemented")


def everything_serialises_and_leaks_nothing(subject: Subject) -> None:
    """Require that results survive a JSON round trip, and that `info` has no secret keys."""
    env = subject.new()
    for task in subject.some():
        (first, history), _ = walk(env, task, subject.steps)
        _through_json(OBSERVED, _words(first[0]))
        for transition, signals in history:
            text = _words(transition.observation)
            _through_json(CHANGED, replace(transition, observation=text))
            _through_json(SIGNALLED, signals)
            leaked = [key for key in transition.info if any(word in key.lower() for word in SECRET)]
            require(not leaked, f"info has the keys {leaked}, which an agent must not see")


def a_closed_world_leaves_nothing(subject: Subject) -> None:
    """Require that no process outlives `close`, and that closing twice is harmless."""
    import psutil

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    env = subject.new()
    walk(env, subject.some()[0], subject.steps)
    env.close()
    env.close()
    later = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    _, alive = psutil.wait_procs(later, timeout=5)
    require(not alive, f"{len(alive)} process(es) outlive a closed environment")


CLAUSES: tuple[Callable[[Subject], None], ...] = (
    equal_tasks_give_equal_worlds,
    splits_share_no_task,
    a_reset_works_after_any_state,
    restoring_equals_replaying,
    foreign_snapshots_are_refused,
    equal_keys_have_equal_futures,
    keys_differ_where_progress_does,
    the_oracle_solves,
    the_oracle_leads_on,
    the_known_answer_solves,
    progress_rises_to_one_exactly_at_success,
    an_end_is_of_one_kind,
    garbage_is_answered_in_words,
    what_comes_after_the_end_is_refused,
    tools_are_as_described,
    elements_are_of_the_state,
    *PLAYERS,
    two_worlds_share_no_state,
    what_is_not_declared_is_refused,
    everything_serialises_and_leaks_nothing,
    a_closed_world_leaves_nothing,
)


# ── details ──────────────────────────────────────────────────────────────────


def _garbled(env: Environment, action: Action, shown: str) -> bool:
    """Do an invalid action; return whether a reset is needed, since any text may be an action."""
    before = signals_of(env)
    try:
        transition = env.step(action)
    except Exception as error:
        fail(f"{shown!r} raised {type(error).__name__}: {error}")
    require(bool(transition.observation.text.strip()), f"{shown!r} was answered with nothing")
    if transition.valid:
        require(env.spec.free_text, f"{shown!r} was understood, and free_text is not declared")
        return ended(transition)
    require(transition.reward == 0.0, f"{shown!r} was not understood, and had a reward")
    require(not ended(transition), f"{shown!r} was not understood, and ended the episode")
    require(signals_of(env) == before, f"{shown!r} was not understood, and changed the state")
    return False


def progress_of(signals: Signals) -> float:
    if signals.progress is None:
        fail("progress is declared, but the signals have none")
    return signals.progress


def _one_at_success(task: Task, transition: Transition, progress: float) -> None:
    require(0.0 <= progress <= 1.0, f"task {task.id}: progress is {progress}")
    require(
        (progress == 1.0) == transition.success,
        f"task {task.id}: progress {progress} with success={transition.success}",
    )


def _words(observation: Observation) -> Observation:
    """Return an observation without its images; require that each matches its hash."""
    for image in observation.images:
        require(isinstance(image, Image), f"{shortened(image)} is not an image; use Image.of(data)")
        require(Image.of(image.data) == image, f"{image} has other bytes than its hash says")
    return replace(observation, images=())


def _through_json(shape: TypeAdapter[Any], value: object) -> None:
    try:
        again = shape.validate_json(shape.dump_json(value, warnings="error"), strict=True)
    except ValueError as error:
        fail(f"{shortened(value)} is not what the contract allows: {error}")
    require(again == value, f"{shortened(value)} changes in a JSON round trip")
