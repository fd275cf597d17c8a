"""Apps keep the contract; verdicts are right for solutions, near misses and wrong solutions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.gate import judged, near_misses
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.composing.wrong_solutions import wrong_solutions
from palaestra.environments.families.apps.drawing import drawn
from palaestra.environments.families.apps.environment import Apps

LEVELS = ("easy", "medium", "hard", "easy-challenge", "easy-new")


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", ["apps/easy", "apps/easy-new:all", "apps/medium:code"])
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


@pytest.mark.parametrize("name", LEVELS)
def test_a_reference_solves_and_constant_behaviour_does_not(name: str) -> None:
    env = Apps(name)
    for task in Apps.tasks(f"apps/{name}").take(Split.TEST, 8):
        env.reset(task)
        assert env.progress() < 1
        plan = env.oracle()
        steps = [env.step(action) for action in plan]
        assert steps[-1].success
        assert env.progress() == 1
        for words in ("", "I cannot do that.", "I hand this over to a person."):
            env.reset(task)
            assert not env.step(Action(f"finish(answer={words!r})")).success


@pytest.mark.parametrize("name", LEVELS)
def test_near_misses_and_wrong_solutions_are_rejected(name: str) -> None:
    level, _, kind = name.partition("-")
    tried = 0
    for seed in range(2, 14, 3):
        made = drawn(level, kind, seed)
        world, rng = made.open(), random.Random(seed)
        for number, slots in near_misses(world, made.task, rng):
            fork = world.fork()
            ran = run(made.task.steps(number, slots), fork, MAIN)
            assert not judged(fork, made.ways, ran.answer or "").success
            tried += 1
        for wrong in wrong_solutions(world, made.task, rng):
            fork = world.fork()
            for call in wrong.calls:
                fork.call(call.api, call.arguments, MAIN)
            assert not judged(fork, made.ways, wrong.answer or "").success, wrong.label
            tried += 1
    assert tried > 20


def test_the_oracle_goes_on_from_half_of_its_plan() -> None:
    env, other = Apps("hard:discover"), Apps("hard:discover")
    task = Apps.tasks("apps/hard:discover").task(Split.TEST, 3)
    env.reset(task)
    plan = env.oracle()
    for action in plan[: len(plan) // 2]:
        env.step(action)
    other.reset(task)
    other.restore(env.snapshot())
    assert other.oracle() == env.oracle() == plan[len(plan) // 2 :]


def test_a_change_that_cannot_be_undone_leaves_no_plan_and_costs_progress() -> None:
    env = Apps("easy:all")
    for task in Apps.tasks("apps/easy:all").take(Split.TEST, 20):
        env.reset(task)
        if env._drawn.task.goals[0].atom.name == "pay":
            break
    payee = env._running().state.get("supervisor.person", 2)
    assert payee is not None
    env.step(Action(f"bank_send_money(payee='{payee['email']}', amount=1)"))
    assert not env.oracle()
    for call in env._drawn.task.reference(env._running())[0].calls:
        env._running().call(call.api, call.arguments, MAIN)
    end = env.step(Action("finish()"))
    assert not end.success
    assert end.info["effect"] is False or end.info["collateral"]


def test_apps_of_discovery_want_a_sign_in_and_tell_how() -> None:
    env = Apps("easy:discover")
    env.reset(Apps.tasks("apps/easy:discover").task(Split.TEST, 0))
    refused = env.step(Action("call(api='mail.list_messages')"))
    assert refused.valid
    assert "mail.login" in refused.observation.text
    assert "username" in env.step(Action("read_api(api='mail.login')")).observation.text
    assert not env.step(Action("fly(to='Rome')")).valid


def test_an_answer_is_what_was_read_before_a_later_goal_changed_it() -> None:
    env = Apps("life-hard")
    env.reset(Apps.tasks("apps/life-hard").task(Split.TEST, 224))  # counts, then cancels one more
    while not (step := env.step(env.oracle()[0])).terminated:
        pass
    assert step.success
