"""Apps as agents: the contract, who sees and may call what, and the verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import palaestra as pa
from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.app_agents.environment import AGENT, AppAgents
from tests.chosen import mostly_slow


def begun(name: str, number: int) -> AppAgents:
    env = AppAgents(name)
    env.reset(AppAgents.tasks(f"app_agents/{name}").task(Split.TEST, number))
    return env


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize(
    "id", mostly_slow(["app_agents/easy", "app_agents/office-medium"], "app_agents/easy")
)
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


def test_experts_solve_tasks_by_asking() -> None:
    done = pa.evaluate(
        "app_agents/medium", agent="players", model="expert", n=4, progress=False, workers=0
    )
    assert done.success == 1


def test_no_app_sees_the_task_or_another_app_and_none_but_it_has_its_apis() -> None:
    env = begun("medium", 0)
    task = env.observe(AGENT).text.partition("Task: ")[2]
    for action in env.oracle():
        (who,) = env.acting()
        seen = env.observe(who).text
        assert (task in seen) == (who == AGENT and "Task: " in seen)
        names = {tool.name for tool in env._tools[who]}
        others = {tool.name for tool in env.tools} - names
        if "Tools:" in seen:
            assert not any(f"{name}(" in seen for name in others)
        refused = env.step(Action(f"{min(others)}()"))
        assert not refused.valid and env.acting() == (who,)
        step = env.step(action)
    assert step.success and set(step.rewards) == set(env.spec.players)


def test_what_an_app_answers_wrongly_is_a_failure_of_all() -> None:
    env = begun("easy", 0)
    plan = env.oracle()
    for action in plan:
        changing = action.call is not None and env.acting() != (AGENT,)
        step = env.step(Action("I have done that.") if changing else action)
        if step.terminated:
            break
    assert not step.success and set(step.rewards.values()) == {0.0}


def test_only_apps_are_heard() -> None:
    env = begun("easy", 1)
    assert not env.step(Action("Hello, mail!")).valid
    assert not env.step(Action('ask(app="casino", message="Hello")')).valid
    assert env.step(Action('ask(app="mail", message="Which mails do I have?")')).valid
    assert env.acting() == ("mail",)
    assert env.observe(AGENT).text == "It is not your turn."
    assert env.step(Action("None that I would know of.")).valid
    assert env.observe(AGENT).text == "mail: None that I would know of."
