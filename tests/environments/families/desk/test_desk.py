"""Desks keep the contract; their verdicts have parts; twins leave constant behaviour at a half."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from palaestra.core.environment import Action
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.state import difference
from palaestra.environments.families.desk.drawing import DESKS, drawn
from palaestra.environments.families.desk.environment import Desk
from palaestra.environments.families.desk.scenario import EMPLOYEE
from tests.chosen import mostly_slow

SLOW = ("services:users", "support", "support:users")  # drawing their worlds takes longest
TALKS = mostly_slow(DESKS, "orders", "telephone", "hotel", "services")
NAMES = mostly_slow(Desk.names(), *(n for n in Desk.names() if n not in SLOW))
REFUSAL = "I am sorry, I cannot do that."


def task_of(name: str, number: int, split: Split = Split.TEST) -> Task:
    return Desk.tasks(f"desk/{name}").task(split, number)


def begun(name: str, number: int) -> Desk:
    env = Desk(name)
    env.reset(task_of(name, number))
    return env


def number_of(desk: str, kind: str, *, permitted: bool = True, after: int = 0) -> int:
    """Return the first task of a kind."""
    for number in range(after, after + 100):
        found = drawn(desk, task_of(desk, number).seed)
        if found.kind.name == kind and found.permitted is permitted:
            return number
    raise AssertionError(f"no {kind}")


def say(env: Desk, *texts: str) -> bool:
    """Do some actions; return whether the conversation ended in success."""
    step = None
    for text in texts:
        step = env.step(Action(text))
        if step.terminated:
            break
    return step is not None and step.success


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"desk/{name}", steps=15, per_split=1))


@pytest.mark.parametrize("name", NAMES)
def test_the_expert_solves_every_task(name: str) -> None:
    env = Desk(name)
    for number in range(24):
        env.reset(task_of(name, number))
        plan = env.oracle()
        assert plan, f"task {number}, of {env.drawn.kind.name}"
        assert [env.step(action) for action in plan][-1].success


def behaviours(desk: str, number: int) -> Iterator[tuple[str, bool]]:
    """Yield what constant behaviour, and chance, come to in a task."""
    # Says nothing of use until the user gives up.
    yield "nothing", say(begun(desk, number), *["How can I help you?"] * 40)
    yield "refusal", say(begun(desk, number), *[REFUSAL] * 40)
    yield "hand-over", say(begun(desk, number), f"{desk}_hand_over(reason='I pass this on.')")
    env, rng = begun(desk, number), random.Random(number)
    for _ in range(60):
        step = env.step(env.sample_action(rng))
        if step.terminated:
            break
    yield "chance", step.success


@pytest.mark.parametrize("desk", TALKS)
def test_constant_behaviour_passes_at_most_half_of_the_twins_and_no_other_task(desk: str) -> None:
    passed: dict[tuple[str, bool], list[bool]] = {}
    for number in range(40):
        twin = drawn(desk, task_of(desk, number).seed).kind.twin
        for name, success in behaviours(desk, number):
            passed.setdefault((name, twin), []).append(success)
    assert {twin for _, twin in passed} == {True, False}
    for (name, twin), found in passed.items():
        assert sum(found) <= (len(found) / 2 if twin else 0), name
    assert sum(passed["refusal", True]) > 0
    assert sum(passed["hand-over", True]) > 0


@pytest.mark.parametrize("desk", TALKS)
def test_twins_differ_in_one_row_and_in_no_word(desk: str) -> None:
    kinds = set()
    for number in range(0, 40, 2):
        one, other = (drawn(desk, task_of(desk, n).seed) for n in (number, number + 1))
        if not one.kind.twin:
            continue
        kinds.add(one.kind.name)
        assert one.permitted is not other.permitted
        assert one.scenario.wishes[0].words == other.scenario.wishes[0].words
        assert (one.scenario.known, one.scenario.persona) == (
            other.scenario.known,
            other.scenario.persona,
        )
        assert begun(desk, number)._seen == begun(desk, number + 1)._seen
        assert len(difference(one.open().state, other.open().state)) == 1
    assert kinds == {kind.name for kind in DESKS[desk].kinds if kind.twin}


def test_which_twin_is_permitted_does_not_show_in_its_number() -> None:
    first = [drawn("orders", task_of("orders", n).seed).permitted for n in range(0, 200, 10)]
    assert {True, False} == set(first)


def test_doing_it_without_a_yes_breaks_the_policy_and_nothing_else() -> None:
    env = begun("hotel", number_of("hotel", "cancel"))
    plan = env.oracle()
    kept = [action for action in plan if "Shall I go ahead" not in action.text]
    assert len(kept) == len(plan) - 1
    last = [env.step(action) for action in kept][-1]
    assert last.terminated and not last.success
    assert last.info == {
        "effect": True,
        "reply": True,
        "policy": ["confirmation"],
        "collateral": [],
    }
    assert env.progress() < 1


def test_what_policy_forbids_is_collateral_where_the_service_allows_it() -> None:
    env = begun("orders", number_of("orders", "cancel", permitted=False))
    scenario = env.drawn.scenario
    number = scenario.known["order_number"]
    (order,) = env.world.state.find("orders.order", number=number)
    env.step(Action("May I have your email address and your postcode?"))
    identity = env.drawn.desk.identify(scenario.known)
    arguments = ", ".join(f"{k}={v!r}" for k, v in identity.arguments.items())
    env.step(Action(f"orders_verify_customer({arguments})"))
    env.step(Action("Shall I go ahead?"))
    assert (
        "refunded"
        in env.step(Action(f"orders_cancel_order(order_id={order['id']})")).observation.text
    )
    last = env.step(Action("That is done. Is there anything else?"))
    assert last.info["policy"] == [] and len(last.info["collateral"]) == 2
    assert not last.success


def wrong_plans(env: Desk, plan: list[Action]) -> Iterator[list[Action]]:
    """Yield a right conversation without one of its changes, or with another id in one."""
    for index, action in enumerate(plan):
        call = action.call
        api = "" if call is None else call.name.replace("_", ".", 1)
        changes = bool(api) and env.drawn.desk.suite.apis[api].changes
        if changes or "phone_set" in action.text or "phone_restart" in action.text:
            yield [*plan[:index], *plan[index + 1 :]]
        if not changes or call is None:
            continue
        for name, value in call.arguments.items():
            if type(value) is int:
                for other in (value - 1, value + 1):
                    made = replace(call, arguments={**call.arguments, name: other})
                    yield [*plan[:index], Action(str(made), made), *plan[index + 1 :]]


@pytest.mark.parametrize("desk", TALKS)
def test_conversations_with_one_wrong_call_fail(desk: str) -> None:
    tried = 0
    for number in range(14):
        env, task = Desk(desk), task_of(desk, number)
        env.reset(task)
        for wrong in wrong_plans(env, env.oracle()):
            env.reset(task)
            for action in wrong:
                step = env.step(action)
                if step.terminated:
                    break
            assert not step.success, (number, wrong)
            tried += 1
    assert tried > 12


def test_who_does_not_heed_a_change_of_mind_fails() -> None:
    env = begun("orders", number_of("orders", "exchange"))
    first = env.drawn.scenario.wishes[0].calls[-1]
    plan = env.oracle()
    at = next(k for k, a in enumerate(plan) if "exchange_order(" in a.text)
    old = ToolCall("orders_exchange_order", first.arguments)
    last = [env.step(a) for a in [*plan[:at], Action(str(old), old), *plan[at + 1 :]]][-1]
    assert last.terminated and not last.info["effect"] and last.info["collateral"]


def test_a_question_must_be_answered() -> None:
    env = begun("hotel", number_of("hotel", "service"))
    plan = env.oracle()
    silent = [*plan[:-1], Action("That is done. Is there anything else?")]
    last = [env.step(action) for action in silent][-1]
    assert (last.info["effect"], last.info["reply"], last.success) == (True, False, False)


def test_the_oracle_goes_on_from_half_of_its_plan() -> None:
    env, other = begun("telephone", number_of("telephone", "offline")), Desk("telephone")
    plan = env.oracle()
    for action in plan[: len(plan) // 2]:
        env.step(action)
    other.restore(env.snapshot())
    assert other.oracle() == env.oracle() == plan[len(plan) // 2 :]


def test_staff_sees_and_changes_what_belongs_to_others_and_customers_do_not() -> None:
    found = drawn("orders", task_of("orders", 0).seed)
    world, me = found.open(), found.scenario.customer
    everything = world.call("orders.list_orders", {}, EMPLOYEE).body
    mine = world.call("orders.list_orders", {"customer": me}, EMPLOYEE).body
    assert everything["total"] > mine["total"] > 0
    assert {order["customer"] for order in mine["orders"]} == {me}
    assert world.call("orders.list_orders", {}, me).body["total"] == mine["total"]
    other = next(r for r in world.state.rows("orders.order") if r["customer"] not in (me, 1))
    assert world.call("orders.show_order", {"order_id": other["id"]}, me).status == 404
    assert world.call("orders.show_order", {"order_id": other["id"]}, EMPLOYEE).ok


def test_a_blueprint_whose_staff_is_no_entity_is_refused() -> None:
    text = 'app = "x"\nabout = "x"\nstaff = "nobody"\n[entities.a]\nabout = "a"\npublic = true\n'
    with pytest.raises(Exception, match=r"line 3: `staff` is 'nobody', which is no entity with"):
        parse(text + 'fields.b = "text"\n')


def test_a_person_at_the_desk_cannot_use_the_phone_of_the_user() -> None:
    env = begun("telephone", number_of("telephone", "offline"))
    assert not env.step(Action("phone_restart()")).valid
    solo = begun("telephone:solo", number_of("telephone", "offline"))
    assert solo.step(Action("phone_restart()")).valid
    assert not solo.step(Action("Hello?")).valid


def test_a_service_error_is_answered_and_leaves_no_trace() -> None:
    env = begun("orders", 0)
    key = env.state_key()
    for text in (
        "orders_cancel_order(order_id=999)",
        "orders_verify_customer(email='a', postcode='b')",
    ):
        assert "error" in env.step(Action(text)).observation.text
    assert env.state_key() == key
