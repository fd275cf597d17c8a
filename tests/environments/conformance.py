"""The contract of an environment, one function per clause.

Each takes a `Subject` and raises AssertionError where the clause is broken. A clause
about a capability holds by itself where the capability is not declared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.errors import CapabilityMissing
from palaestra.core.task import Split, Task, TaskSet

GARBAGE = (
    "",
    " \n\t\n ",
    "ünïcödé 走れ 🏃\u202e",
    "x" * 10_000,
    "<|im_start|>system\nobey<|im_end|>",
    "\x00\x07\x1b[2J",
    "{}[]()'\";--",
)
"""What no world understands."""

History = list[tuple[Transition, Signals]]


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment to be examined."""

    make: Callable[[], Environment]
    tasks: TaskSet
    words: Sequence[str]  # actions that it understands, for random walks
    steps: int = 25  # length of a random walk


def equal_tasks_give_equal_worlds(subject: Subject) -> None:
    for task in _some(subject):
        assert _lived(subject, subject.make(), task) == _lived(subject, subject.make(), task)


def splits_share_no_seed(subject: Subject) -> None:
    seeds = [{task.seed for task in subject.tasks.take(split, 200)} for split in Split]
    assert not (seeds[0] & seeds[1] or seeds[0] & seeds[2] or seeds[1] & seeds[2])


def a_reset_works_after_any_state(subject: Subject) -> None:
    first, second = _some(subject)[:2]
    fresh = _lived(subject, subject.make(), first)
    world = subject.make()
    for before in (first, second):
        _walk(subject, world, before)  # leaves the world in the middle, or at an end
        assert _lived(subject, world, first) == fresh


def restoring_equals_replaying(subject: Subject) -> None:
    world = subject.make()
    if Capability.SNAPSHOT not in world.capabilities:
        return
    for task in _some(subject):
        words = _words(subject, task)
        world.reset(task)
        past = _follow(world, words[:3])
        if _ended(past[-1][0]):
            continue
        done = len(past)
        saved, signals = world.snapshot(), world.signals()
        future = _follow(world, words[done:])
        for restored in (world, subject.make()):
            restored.restore(saved)
            assert restored.signals() == signals
            assert _follow(restored, words[done:]) == future
        assert _lived(subject, world, task) == _lived(subject, subject.make(), task)


def equal_histories_have_equal_keys_and_equal_keys_equal_futures(subject: Subject) -> None:
    world = subject.make()
    if Capability.STATE_KEY not in world.capabilities:
        return
    for task in _some(subject):
        assert _keys(subject, world, task) == _keys(subject, subject.make(), task)
        words = _words(subject, task)
        keys = _keys(subject, world, task)
        led: dict[tuple[str | None, str], str | None] = {}
        for before, word, after in zip(keys, words, keys[1:], strict=False):
            assert led.setdefault((before, word), after) == after


def keys_differ_where_progress_does(subject: Subject) -> None:
    world = subject.make()
    if not {Capability.STATE_KEY, Capability.PROGRESS} <= world.capabilities:
        return
    for task in _some(subject):
        world.reset(task)
        seen: dict[str | None, float | None] = {}
        for transition, signals in _expert_or_walk(subject, world, task):
            if not transition.success:
                progress = seen.setdefault(signals.state_key, signals.progress)
                assert progress == signals.progress


def the_oracle_solves(subject: Subject) -> None:
    """From the start, and from where a short walk led.

    There it may know no way, and what the walk took may be missing before the world's limit.
    """
    world = subject.make()
    if Capability.ORACLE not in world.capabilities:
        return
    for task in _some(subject):
        world.reset(task)
        before = world.signals()
        way = world.oracle()
        assert way and world.signals() == before
        last = _follow(world, [action.text for action in way])[-1][0]
        assert last.success
        world.reset(task)
        if not any(_ended(step) for step, _ in _follow(world, _words(subject, task)[:6])):
            way = world.oracle()
            last = _follow(world, [action.text for action in way])[-1][0] if way else last
            assert last.success or last.truncated


def progress_rises_to_one_exactly_at_success(subject: Subject) -> None:
    """Along the expert's way. On any way it stays in [0, 1], and is 1 only at success."""
    world = subject.make()
    if Capability.PROGRESS not in world.capabilities:
        return
    for task in _some(subject):
        world.reset(task)
        last = world.progress()
        assert 0.0 <= last < 1.0
        for transition, signals in _expert_or_walk(subject, world, task):
            assert signals.progress is not None and last <= signals.progress <= 1.0
            assert (signals.progress == 1.0) == transition.success
            last = signals.progress
        for transition, signals in _walk(subject, world, task):
            assert signals.progress is not None and 0.0 <= signals.progress <= 1.0
            assert (signals.progress == 1.0) == transition.success


def an_end_is_of_one_kind(subject: Subject) -> None:
    """Success implies terminated, and no step both terminates and truncates."""
    world = subject.make()
    for task in _some(subject):
        world.reset(task)
        for transition, _ in [
            *_expert_or_walk(subject, world, task),
            *_walk(subject, world, task),
        ]:
            assert transition.terminated or not transition.success
            assert not (transition.terminated and transition.truncated)


def garbage_is_answered_in_words_and_changes_nothing(subject: Subject) -> None:
    for task in _some(subject)[:2]:
        world, other = subject.make(), subject.make()
        world.reset(task)
        other.reset(task)
        for garbage in GARBAGE:
            before = world.signals()
            transition = world.step(Action(garbage))
            assert not transition.valid and transition.observation.text.strip()
            assert transition.reward == 0.0 and not _ended(transition)
            assert world.signals() == before
        words = _words(subject, task)
        assert _follow(world, words) == _follow(other, words)


def two_worlds_share_no_state(subject: Subject) -> None:
    first, second = _some(subject)[:2]
    alone = [_lived(subject, subject.make(), task) for task in (first, second)]
    worlds = subject.make(), subject.make()
    starts = [_started(world, task) for world, task in zip(worlds, (first, second), strict=True)]
    histories: list[History] = [[], []]
    ways = [_words(subject, first), _words(subject, second)]
    for turn in range(subject.steps):
        for world, way, history in zip(worlds, ways, histories, strict=True):
            if not (history and _ended(history[-1][0])):
                history += _follow(world, way[turn : turn + 1])
    assert list(zip(starts, histories, strict=True)) == alone


def what_is_not_declared_is_refused(subject: Subject) -> None:
    world = subject.make()
    world.reset(_some(subject)[0])
    calls: dict[Capability, Callable[[], object]] = {
        Capability.STATE_KEY: world.state_key,
        Capability.SNAPSHOT: world.snapshot,
        Capability.PROGRESS: world.progress,
        Capability.ORACLE: world.oracle,
        Capability.ADMISSIBLE: world.admissible,
    }
    for capability, call in calls.items():
        if capability in world.capabilities:
            call()
            continue
        with pytest.raises(CapabilityMissing, match=capability):
            call()
    if Capability.SNAPSHOT not in world.capabilities:
        with pytest.raises(CapabilityMissing, match="snapshot"):
            world.restore(b"")


CLAUSES: tuple[Callable[[Subject], None], ...] = (
    equal_tasks_give_equal_worlds,
    splits_share_no_seed,
    a_reset_works_after_any_state,
    restoring_equals_replaying,
    equal_histories_have_equal_keys_and_equal_keys_equal_futures,
    keys_differ_where_progress_does,
    the_oracle_solves,
    progress_rises_to_one_exactly_at_success,
    an_end_is_of_one_kind,
    garbage_is_answered_in_words_and_changes_nothing,
    two_worlds_share_no_state,
    what_is_not_declared_is_refused,
)


def _some(subject: Subject) -> list[Task]:
    return [*subject.tasks.take(Split.TRAIN, 3), *subject.tasks.take(Split.TEST, 2)]


def _words(subject: Subject, task: Task) -> list[str]:
    return random.Random(task.seed).choices(list(subject.words), k=subject.steps)


def _ended(transition: Transition) -> bool:
    return transition.terminated or transition.truncated


def _follow(world: Environment, words: Sequence[str]) -> History:
    """Act until the words or the episode end."""
    history: History = []
    for word in words:
        transition = world.step(Action(word))
        history.append((transition, world.signals()))
        if _ended(transition):
            break
    return history


def _started(world: Environment, task: Task) -> tuple[Observation, Signals]:
    return world.reset(task), world.signals()


def _walk(subject: Subject, world: Environment, task: Task) -> History:
    world.reset(task)
    return _follow(world, _words(subject, task))


def _lived(
    subject: Subject, world: Environment, task: Task
) -> tuple[tuple[Observation, Signals], History]:
    return _started(world, task), _follow(world, _words(subject, task))


def _keys(subject: Subject, world: Environment, task: Task) -> list[str | None]:
    start, history = _lived(subject, world, task)
    return [start[1].state_key, *(signals.state_key for _, signals in history)]


def _expert_or_walk(subject: Subject, world: Environment, task: Task) -> History:
    world.reset(task)
    if Capability.ORACLE in world.capabilities:
        return _follow(world, [action.text for action in world.oracle()])
    return _walk(subject, world, task)
