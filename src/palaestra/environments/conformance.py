"""What every environment is held to, one function per clause.

Each clause takes a `Subject` and raises `Broken` where the environment breaks it. A clause about
a capability holds by itself where the capability is not declared. `palaestra check-env` runs them
all and shows the smallest trace that breaks one (`checking.py`); third parties run them with
pytest (`pytest_plugin.py`). What is asked of reference solutions is in `conformance_oracle.py`,
what takes long in `conformance_deep.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
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
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.environments.conformance_oracle import the_oracle_leads_on, the_oracle_solves
from palaestra.environments.examination import (
    History,
    Subject,
    demand,
    ended,
    expert_or_walk,
    fail,
    follow,
    live,
    same,
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
"""What no world understands, unless any words are an action there."""

SECRET = ("answer", "gold", "oracle", "secret", "seed", "solution", "walkthrough")
"""Keys that `info` must not have: whoever reads it could act on them."""

OBSERVED = TypeAdapter(Observation)
CHANGED = TypeAdapter(Transition)
SIGNALLED = TypeAdapter(Signals)


def equal_tasks_give_equal_worlds(subject: Subject) -> None:
    """Seeds reproduce: two worlds with the same task and actions never differ."""
    for task in subject.some():
        world = subject.new()
        if not world.deterministic:
            return
        first, actions = walk(world, task, subject.steps)
        same(first, live(subject.new(), task, actions), f"two worlds with task {task.id}")


def splits_share_no_task(subject: Subject) -> None:
    """No seed belongs to two splits, and no listed task does."""
    seen: dict[object, Split] = {}
    for split in Split:
        count = subject.tasks.count(split)
        for task in subject.tasks.take(split, 200 if count is None else min(count, 200)):
            parameters = json.dumps(dict(task.parameters), sort_keys=True, default=str)
            key = task.seed if count is None else (task.seed, parameters)
            demand(
                seen.setdefault(key, split) is split,
                f"task {task.id} has the seed {task.seed}, which belongs to {seen[key]} as well",
            )


def a_reset_works_after_any_state(subject: Subject) -> None:
    """From the middle of an episode, from its end, and from another task."""
    first, *others = subject.some()
    if not subject.new().deterministic:
        return
    fresh, actions = walk(subject.new(), first, subject.steps)
    world = subject.new()
    for before in (first, *others[-1:]):
        walk(world, before, subject.steps)  # leaves the world in the middle, or at an end
        same(fresh, live(world, first, actions), f"a world reset after task {before.id}")


def restoring_equals_replaying(subject: Subject) -> None:
    """A restored world goes on as the one that was saved, in it and in another instance."""
    world = subject.new()
    if Capability.SNAPSHOT not in world.capabilities:
        return
    for task in subject.some():
        (_, whole), actions = walk(world, task, subject.steps)
        past = [step for step, _ in whole[:3]]
        if not past or any(map(ended, past)):
            continue
        live(world, task, actions[:3])
        saved, signals = world.snapshot(), world.signals()
        future = follow(world, actions[3:])
        for restored, which in ((world, "the same world"), (subject.new(), "another instance")):
            restored.restore(saved)
            demand(
                restored.signals() == signals,
                f"after restoring in {which}, signals are {restored.signals()}, not {signals}",
            )
            same(future, follow(restored, actions[3:]), f"a snapshot restored in {which}")


def foreign_snapshots_are_refused(subject: Subject) -> None:
    """What is no snapshot of this world is an InputError in one sentence."""
    world = subject.new()
    if Capability.SNAPSHOT not in world.capabilities:
        return
    world.reset(subject.some()[0])
    for foreign in (b"", b"rubbish", b'{"name": "another/world"}'):
        try:
            world.restore(foreign)
        except InputError:
            continue
        except Exception as error:
            fail(f"restore({foreign!r}) raised {type(error).__name__} instead of an InputError")
        fail(f"restore({foreign!r}) was accepted")


def equal_keys_have_equal_futures(subject: Subject) -> None:
    """Equal histories give equal keys, and an action from equal keys leads to equal keys."""
    world = subject.new()
    if Capability.STATE_KEY not in world.capabilities:
        return
    for task in subject.some():
        told, actions = walk(world, task, subject.steps)
        keys = state_keys(told)
        if world.deterministic:
            again = state_keys(live(subject.new(), task, actions))
            demand(keys == again, f"task {task.id}: the same actions gave other state keys")
        led: dict[tuple[str | None, str], str | None] = {}
        for before, action, after in zip(keys, actions, keys[1:], strict=False):
            if world.deterministic:
                demand(
                    led.setdefault((before, action.text), after) == after,
                    f"task {task.id}: {action.text!r} from one state key led to two others",
                )


def keys_differ_where_progress_does(subject: Subject) -> None:
    """A key that stands for two amounts of progress cannot anchor credit."""
    world = subject.new()
    if not {Capability.STATE_KEY, Capability.PROGRESS} <= world.capabilities:
        return
    for task in subject.some():
        seen: dict[str | None, float | None] = {}
        for transition, signals in expert_or_walk(world, task, subject.steps):
            if not ended(transition):
                known = seen.setdefault(signals.state_key, signals.progress)
                demand(
                    known == signals.progress,
                    f"task {task.id}: one state key has progress {known} and {signals.progress}",
                )


def progress_rises_to_one_exactly_at_success(subject: Subject) -> None:
    """It never falls on the expert's way; anywhere it is in [0, 1], and 1 only at success."""
    world = subject.new()
    if Capability.PROGRESS not in world.capabilities:
        return
    for task in subject.some():
        world.reset(task)
        last = world.progress()
        demand(0.0 <= last < 1.0, f"task {task.id} starts with progress {last}")
        expert = Capability.ORACLE in world.capabilities
        told = follow(world, world.oracle()) if expert else []
        for transition, signals in told:
            progress = progress_of(signals)
            demand(last <= progress, f"task {task.id}: progress fell from {last} to {progress}")
            _one_at_success(task, transition, progress)
            last = progress
        (_, walked), _ = walk(world, task, subject.steps)
        for transition, signals in walked:
            _one_at_success(task, transition, progress_of(signals))


def an_end_is_of_one_kind(subject: Subject) -> None:
    """Success implies terminated, and no step both terminates and truncates."""
    world = subject.new()
    for task in subject.some():
        (_, walked), _ = walk(world, task, subject.steps)
        for transition, _ in [*walked, *expert_or_walk(world, task, subject.steps)]:
            demand(transition.terminated or not transition.success, "success without terminated")
            both = transition.terminated and transition.truncated
            demand(not both, "one step both terminated and truncated")


def garbage_is_answered_in_words(subject: Subject) -> None:
    """What is not understood changes nothing and costs nothing; nothing that is said raises."""
    for task in subject.some()[:2]:
        world = subject.new()
        world.reset(task)
        for garbage in GARBAGE:
            if _garbled(world, Action(garbage), garbage[:40]):
                world.reset(task)
        if world.tools:
            for call in (ToolCall("no such tool", {}), ToolCall(world.tools[0].name, {"?": 1})):
                if _garbled(world, Action("", call), str(call)):
                    world.reset(task)
        if world.free_text or not world.deterministic:
            continue
        other = subject.new()
        told, actions = walk(other, task, subject.steps)
        same(told[1], follow(world, actions), "a world that was told garbage")


def what_comes_after_the_end_is_refused(subject: Subject) -> None:
    """A further action is answered in words, as invalid, and solves nothing."""
    world = subject.new()
    for task in subject.some()[:2]:
        (_, told), actions = walk(world, task, subject.steps)
        if Capability.ORACLE in world.capabilities:
            world.reset(task)
            actions = list(world.oracle())
            told = follow(world, actions)
        if not told or not ended(told[-1][0]):
            continue
        again = world.step(actions[len(told) - 1])
        demand(not again.valid, "an action after the end was accepted")
        demand(again.reward == 0.0, "an action after the end had a reward")


def tools_are_as_described(subject: Subject) -> None:
    """Schemas are objects, calls that fit them are understood, asking twice gives the same."""
    world = subject.new()
    world.reset(subject.some()[0])
    dice = random.Random(0)
    for tool in world.tools:
        demand(bool(tool.description.strip()), f"the tool '{tool.name}' has no description")
        kind = tool.parameters.get("type")
        demand(kind == "object", f"the schema of '{tool.name}' is of type {kind}, not object")
        named = set(tool.parameters.get("properties", {}))
        missing = set(tool.parameters.get("required", ())) - named
        demand(not missing, f"'{tool.name}' requires {missing}, which it does not describe")
    for _ in range(subject.steps if world.tools else 0):
        action = world.sample_action(dice)
        transition = world.step(action)
        demand(transition.valid, f"{action.text} fits its schema and was not understood")
        if ended(transition):
            world.reset(subject.some()[0])


def players_take_turns(subject: Subject) -> None:
    """Whoever acts is one of the players; with several, each has a reward."""
    world = subject.new()
    demand(len(set(world.players)) == len(world.players) > 0, f"players are {world.players}")
    for task in subject.some()[:2]:
        world.reset(task)
        dice = random.Random(task.seed)
        for _ in range(subject.steps):
            turn = world.turn_of()
            demand(turn in world.players, f"it is the turn of '{turn}', who does not play")
            transition = world.step(world.sample_action(dice))
            strangers = set(transition.rewards) - set(world.players)
            demand(not strangers, f"rewards of {strangers}, who do not play")
            if len(world.players) > 1:
                given = set(transition.rewards) in (set(), set(world.players))
                demand(given, "some players have a reward and others have none")
            if ended(transition):
                break


def two_worlds_share_no_state(subject: Subject) -> None:
    """Worlds that act in turns live as each would alone."""
    tasks = subject.some()
    first, second = tasks[0], tasks[-1]
    if not subject.new().deterministic:
        return
    alone = [walk(subject.new(), task, subject.steps) for task in (first, second)]
    worlds = subject.new(), subject.new()
    starts = [start(world, task) for world, task in zip(worlds, (first, second), strict=True)]
    histories: list[History] = [[], []]
    for turn in range(subject.steps):
        for world, (_, actions), history in zip(worlds, alone, histories, strict=True):
            history += follow(world, actions[turn : turn + 1])
    for (told, _), begun, history in zip(alone, starts, histories, strict=True):
        same(told, (begun, history), "a world beside another one")


def what_is_not_declared_is_refused(subject: Subject) -> None:
    """Asking for it raises CapabilityMissing; what is declared answers."""
    world = subject.new()
    world.reset(subject.some()[0])
    calls: dict[Capability, Callable[[], object]] = {
        Capability.STATE_KEY: world.state_key,
        Capability.SNAPSHOT: world.snapshot,
        Capability.PROGRESS: world.progress,
        Capability.ORACLE: world.oracle,
        Capability.ADMISSIBLE: world.admissible,
        Capability.PICTURE: world.picture,
    }
    for capability, call in calls.items():
        if capability in world.capabilities:
            call()
            continue
        try:
            call()
        except CapabilityMissing:
            continue
        fail(f"'{capability}' is not declared, and is there all the same")


def everything_serialises_and_leaks_nothing(subject: Subject) -> None:
    """What a world returns passes through JSON unchanged, and `info` names no secret."""
    world = subject.new()
    for task in subject.some():
        (first, history), _ = walk(world, task, subject.steps)
        _through_json(OBSERVED, first[0])
        for transition, signals in history:
            _through_json(CHANGED, transition)
            _through_json(SIGNALLED, signals)
            told = [key for key in transition.info if any(word in key.lower() for word in SECRET)]
            demand(not told, f"info has the keys {told}, which an agent must not see")


def a_closed_world_leaves_nothing(subject: Subject) -> None:
    """No process survives it, and closing twice does no harm."""
    import psutil

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    world = subject.new()
    walk(world, subject.some()[0], subject.steps)
    world.close()
    world.close()
    later = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    _, alive = psutil.wait_procs(later, timeout=5)
    demand(not alive, f"{len(alive)} process(es) outlive a closed world")


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
    progress_rises_to_one_exactly_at_success,
    an_end_is_of_one_kind,
    garbage_is_answered_in_words,
    what_comes_after_the_end_is_refused,
    tools_are_as_described,
    players_take_turns,
    two_worlds_share_no_state,
    what_is_not_declared_is_refused,
    everything_serialises_and_leaks_nothing,
    a_closed_world_leaves_nothing,
)


# ── details ──────────────────────────────────────────────────────────────────


def _garbled(world: Environment, action: Action, shown: str) -> bool:
    """Say garbage; whether the world must be reset, as garbage may be an action there."""
    before = world.signals()
    try:
        transition = world.step(action)
    except Exception as error:
        fail(f"{shown!r} raised {type(error).__name__}: {error}")
    demand(bool(transition.observation.text.strip()), f"{shown!r} was answered with nothing")
    if transition.valid:
        demand(world.free_text, f"{shown!r} was understood, and free_text is not declared")
        return ended(transition)
    demand(transition.reward == 0.0, f"{shown!r} was not understood, and had a reward")
    demand(not ended(transition), f"{shown!r} was not understood, and ended the episode")
    demand(world.signals() == before, f"{shown!r} was not understood, and changed the state")
    return False


def progress_of(signals: Signals) -> float:
    if signals.progress is None:
        fail("progress is declared, and signals() has none")
    return signals.progress


def _one_at_success(task: Task, transition: Transition, progress: float) -> None:
    demand(0.0 <= progress <= 1.0, f"task {task.id}: progress is {progress}")
    demand(
        (progress == 1.0) == transition.success,
        f"task {task.id}: progress {progress} with success={transition.success}",
    )


def _through_json(shape: TypeAdapter[Any], value: object) -> None:
    try:
        again = shape.validate_json(shape.dump_json(value, warnings="error"), strict=True)
    except ValueError as error:
        fail(f"{shortened(value)} is not what the contract allows: {error}")
    demand(again == value, f"{shortened(value)} is another thing after its way through JSON")
