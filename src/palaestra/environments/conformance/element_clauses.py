"""The clause for declared elements: what a page, a desktop or a phone shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from palaestra.core.element import Element
from palaestra.core.environment import Action, Capability, Environment
from palaestra.core.rare_capabilities import elements_of
from palaestra.core.task import Task
from palaestra.environments.conformance.subject import (
    Subject,
    ended,
    expert_or_walk,
    require,
    require_equal,
    walk,
)


def elements_are_of_the_state(subject: Subject) -> None:
    """Require sound elements that depend on the task and the actions, also after restoring.

    Ids are unique, parents come before their children, states are sorted, boxes are finite, and
    asking for the elements changes nothing.
    """
    env = subject.new()
    if Capability.ELEMENTS not in env.spec.capabilities:
        return
    for task in subject.some():
        _, actions = walk(env, task, subject.steps)
        pages = _pages(env, task, actions)
        for page in pages:
            _require_sound(page)
        if not env.spec.deterministic:
            continue
        again = _pages(subject.new(), task, actions)
        require_equal(pages, again, f"the elements of two environments with task {task.id}")
        if Capability.SNAPSHOT in env.spec.capabilities:
            _require_restored(subject, env, task, actions[:3])
        expert_or_walk(env, task, subject.steps)
        _require_sound(elements_of(env))


def _pages(env: Environment, task: Task, actions: Sequence[Action]) -> list[tuple[Element, ...]]:
    """Return the elements at each step, each time asked for twice."""
    env.reset(task)
    pages = [_asked_twice(env)]
    for action in actions:
        env.step(action)
        pages.append(_asked_twice(env))
    return pages


def _asked_twice(env: Environment) -> tuple[Element, ...]:
    elements = elements_of(env)
    require(elements_of(env) == elements, "the elements differ when they are asked for again")
    return elements


def _require_sound(elements: Sequence[Element]) -> None:
    seen: set[str | None] = {None}
    for element in elements:
        require(element.id not in seen, f"two elements have the id '{element.id}'")
        require(
            element.parent in seen,
            f"the element '{element.id}' has the parent '{element.parent}', which is not before it",
        )
        require(
            list(element.states) == sorted(set(element.states)),
            f"the states of '{element.id}' are {element.states}, which are not sorted",
        )
        box = element.box
        if box is not None:
            finite = all(map(math.isfinite, (box.x, box.y, box.width, box.height)))
            require(
                finite and box.width >= 0 and box.height >= 0,
                f"the box of '{element.id}' is {box}; its numbers must be finite, its sides not "
                "below 0",
            )
        seen.add(element.id)


def _require_restored(
    subject: Subject, env: Environment, task: Task, actions: Sequence[Action]
) -> None:
    env.reset(task)
    if any(ended(env.step(action)) for action in actions):
        return
    saved, elements = env.snapshot(), elements_of(env)
    other = subject.new()
    other.restore(saved)
    require_equal(elements, elements_of(other), f"the elements of task {task.id}, restored")
