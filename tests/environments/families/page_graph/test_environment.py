"""Tasks of a crawled world in the real browser: the walker solves them, other ends do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.page_graph.environment import PageGraphTasks
from tests.browser.needed import browser_missing

pytestmark = pytest.mark.slow
if why := browser_missing():
    pytest.skip(why, allow_module_level=True)

ID = "page-graph/apps-new"


def test_the_walker_solves_and_other_ends_fail() -> None:
    env, tasks = PageGraphTasks("apps-new"), registry.tasks(ID)
    paths = set()
    for index in range(8):
        task = tasks.task(Split.TEST, index)
        first = env.reset(task)
        assert env.candidate.goal in first.text
        paths.add(env.candidate.meta_path)
        plan = env.oracle()
        for action in plan[:-1]:
            step = env.step(action)
            assert step.valid and not step.terminated, step.observation.text
        assert env.oracle() == plan[-1:]
        assert env.step(plan[-1]).success
        for wrong in ("answer ''", "answer 'something else'", "give up"):
            env.reset(task)
            assert not env.step(Action(wrong)).success
    assert len(paths) > 2
    env.close()


def test_a_right_answer_after_a_change_fails() -> None:
    env, tasks = PageGraphTasks("apps-new"), registry.tasks(ID)
    task = next(
        one for one in tasks.take(Split.TEST, 16) if env.reset(one) and env.candidate.answer
    )
    env.reset(task)
    sites = env._sites
    assert sites is not None
    host = next(one for one in sites.by_host if one not in ("home.example", "supervisor.example"))
    env.step(Action(f"go 'http://{host}/'"))
    delete = next(
        address for address in env.drawn.graph.pages if address.startswith(f"http://{host}/delete_")
    )
    env.step(Action(f"go '{delete}'"))
    button = next(one for one in env.elements() if one.role == "button")
    env.step(Action(f"click [{button.id}]"))
    assert sites.is_changed()
    last = env.step(env.oracle()[-1])
    assert last.info["right"] and not last.success
    env.close()


def test_from_any_page_the_walker_finds_back() -> None:
    env = PageGraphTasks("apps-new")
    env.reset(registry.tasks(ID).task(Split.TEST, 1))
    env.step(Action("go 'http://supervisor.example/nowhere'"))
    for action in env.oracle():
        step = env.step(action)
    assert step.success
    env.close()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    finding = check_clause(Subject.of(ID, steps=5, per_split=1), clause)
    assert not finding.broken, finding.broken
