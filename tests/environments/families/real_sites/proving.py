"""What proves a template of tasks in a real browser, and the contract for environments of sites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from palaestra.core.environment import Action, Environment
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.real_sites.environment import Sites, drawn
from palaestra.environments.families.real_sites.task_template import TaskTemplate

IDLE = ("answer ''", "answer 'I cannot do that.'", "give up")


def of_templates(templates: Iterable[TaskTemplate], fast: Collection[str]) -> Any:
    """Return the parametrisation by templates; all but those named are slow."""
    marked = [
        pytest.param(one, marks=() if one.name in fast else pytest.mark.slow, id=one.name)
        for one in templates
    ]
    return pytest.mark.parametrize("template", marked)


def opened(template: TaskTemplate) -> Sites:
    env = registry.make(f"sites/{template.group}:{template.name}")
    assert isinstance(env, Sites)
    return env


def task(template: TaskTemplate, number: int = 0, split: Split = Split.TEST) -> Task:
    return registry.tasks(f"sites/{template.group}:{template.name}").task(split, number)


def check_ends(env: Sites, template: TaskTemplate, most: int) -> None:
    """Require that the reference passes within `most` gestures and planted wrong ends fail."""
    one = task(template)
    env.reset(one)
    plan, before = env.oracle(), env.progress()
    assert len(plan) <= most
    for action in plan:
        step = env.step(action)
        assert step.valid, f"{action.text}: {step.observation.text}"
        now = env.progress()
        assert now >= before, action.text
        before = now
    assert step.success and step.terminated and now == 1.0
    own = drawn(f"{template.group}:{template.name}", one.seed).task
    if own.hops:  # all of them were seen, and each is a part of progress
        assert env._seen == set(own.hops)
    assert own.wrong
    for wrong in own.wrong:
        env.reset(one)
        for line in wrong.gestures:
            step = env.step(Action(line))
            assert step.valid, f"{line}: {step.observation.text}"
        end = "give up" if wrong.answer is None else f"answer {wrong.answer!r}"
        assert not env.step(Action(end)).success, wrong
        assert env.progress() < 1


def check_idle(env: Sites, one: Task, possible: bool) -> None:
    """Require that ending at once fails, but for giving up what is impossible."""
    for end in IDLE:
        env.reset(one)
        step = env.step(Action(end))
        assert step.terminated
        assert step.success == (end == "give up" and not possible)


def check_contract(id: str, clause: Callable[[Subject], None]) -> None:
    """Check a clause of the contract, and close all worlds that it opens."""
    made: list[Environment] = []

    def new() -> Environment:
        made.append(registry.make(id))
        return made[-1]

    try:
        clause(Subject(new, registry.tasks(id), steps=6))
    finally:
        for env in made:
            env.close()
