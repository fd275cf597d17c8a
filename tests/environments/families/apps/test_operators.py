"""Operators: their verdicts, what they write into worlds, and the scenarios that they make up."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.compiler.blueprint import columns
from palaestra.environments.families.apps.composing.api_graph import ApiGraph, Edge
from palaestra.environments.families.apps.composing.branch import holds
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import CONSTANT, judged, near_misses
from palaestra.environments.families.apps.composing.goal import ANY, MAIN, Goal
from palaestra.environments.families.apps.composing.operators import CALLS, OPERATORS
from palaestra.environments.families.apps.composing.right_solutions import right_solutions
from palaestra.environments.families.apps.composing.stock_atoms import Write
from palaestra.environments.families.apps.composing.verifier import Judge, run, written
from palaestra.environments.families.apps.composing.wrong_solutions import (
    Solution,
    wrong_solutions,
)
from palaestra.environments.families.apps.drawing import Drawn, drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.scenarios import VARIANTS, scenario, variant
from palaestra.environments.families.apps.stock import CORE, stock_suite
from palaestra.environments.families.apps.world import World

KINDS = ("", "challenge", "new")


def passes(world: World, made: Drawn, solution: Solution) -> bool:
    with closing(world.fork()) as fork:
        for one in solution.calls:
            fork.call(one.api, one.arguments, MAIN)
        return judged(fork, made.ways, "" if solution.answer is None else solution.answer).success


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("id", ["apps/hidden-challenge:discover", "apps/ask-new"])
def test_the_contract_holds(id: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(id))


@pytest.mark.parametrize("level", OPERATORS)
def test_references_solve_and_constant_answers_do_not(level: str) -> None:
    env = Apps(f"{level}:discover")
    for task in Apps.tasks(f"apps/{level}:discover").take(Split.TEST, 3):
        env.reset(task)
        steps = [env.step(action) for action in env.oracle()]
        assert steps[-1].success
        for words in CONSTANT:
            env.reset(task)
            assert not env.step(Action(f"finish(answer={words!r})")).success


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", OPERATORS)
def test_wrong_solutions_are_rejected_and_other_right_ones_accepted(level: str, kind: str) -> None:
    made, rng = variant(level, kind, 4), random.Random(level + kind)
    with closing(made.open()) as world:
        missed = 0
        for number, slots in near_misses(world, made.task, rng):
            with closing(world.fork()) as fork:
                ran = run(made.task.steps(number, slots), fork, MAIN)
                assert not judged(fork, made.ways, "").success, ran.calls
            missed += 1
        wrong = list(wrong_solutions(world, made.task, rng))
        assert [one for one in wrong if passes(world, made, one)] == []
        right = list(right_solutions(world, made.task, rng))
        assert [one for one in right if not passes(world, made, one)] == []
    assert missed >= 2
    assert len(wrong) >= 3
    assert len(right) >= 2


# ── scenarios ────────────────────────────────────────────────────────────────


def test_three_tasks_of_a_split_are_variants_of_one_scenario() -> None:
    tasks = Apps.tasks("apps/chain").take(Split.VALIDATION, 6)
    assert [task.parameters["scenario"] for task in tasks] == [0, 0, 0, 1, 1, 1]
    made = [variant("chain", "", task.seed) for task in tasks[:VARIANTS]]
    assert tuple(made) == scenario("chain", "", 0, 1)
    assert len({repr(one.task.goals[0].atom) for one in made}) == 1
    assert len({one.task.instruction for one in made}) == VARIANTS
    assert len({one.template.database for one in made}) == VARIANTS


def test_a_task_of_another_scenario_is_refused() -> None:
    task = Apps.tasks("apps/chain").task(Split.TRAIN, 3)
    with pytest.raises(InputError, match="belongs to the scenario 1"):
        Apps("chain").reset(replace(task, parameters={"scenario": 2}))


@pytest.mark.slow
def test_an_expert_needs_many_calls_and_goals_of_all_kinds() -> None:
    for made in scenario("expert", "", 0, 0):
        with closing(made.open()) as world:
            assert len(made.task.reference(world)[0].calls) >= CALLS
        names = {goal.atom.name.split()[-1] for goal in made.task.goals}
        assert names >= set(OPERATORS)


# ── each operator ────────────────────────────────────────────────────────────


def test_a_chain_uses_a_value_of_the_type_that_its_goal_takes() -> None:
    for number in range(3):
        for kind in KINDS:
            (goal,) = variant("chain", kind, 9 * number).task.goals
            gap = goal.atom.deed.gaps(goal.slots["goal"].slots)[goal.slots["path"]]
            assert gap.kind in (goal.atom.source.kind(goal.slots["source"]), ANY)


def test_the_graph_says_what_fits() -> None:
    edges = set(ApiGraph(stock_suite(CORE)).edges())
    assert Edge("contacts.search_contacts", "email", "bank.send_money", "payee") in edges
    assert Edge("calendar.list_events", "id", "calendar.invite", "event_id") in edges
    assert not [edge for edge in edges if edge.field == "phone" and edge.argument == "payee"]


def test_a_hidden_value_stands_in_one_mail_in_the_order_of_time() -> None:
    made = variant("hidden", "", 0)
    (goal,) = made.task.goals
    mail = goal.slots["mails"][0]
    with closing(made.open()) as world:
        rows = world.state.find("mail.message", owner=MAIN)
        assert [row["sent"] for row in rows] == sorted(row["sent"] for row in rows)
        assert len([row for row in rows if row["body"] == mail["body"]]) == 1
        named = [row for row in rows if mail["topic"] in row["body"]]
        assert len(named) == 2  # somebody else writes about the same
        for row in world.state.rows("mail.message", "answers IS NOT NULL"):
            answered = world.state.get("mail.message", row["answers"])
            assert answered is not None
            assert row["subject"] == f"Re: {answered['subject'].removeprefix('Re: ')}"
            assert answered["owner"] == row["owner"]
    value = mail["body"].partition(" is ")[2].split("\n")[0]
    assert value not in made.task.instruction


def test_the_person_answers_what_is_asked_by_its_key_words() -> None:
    made = variant("ask", "", 0)
    (goal,) = made.task.goals
    with closing(made.open()) as world:

        def ask(question: str) -> str:
            reply: Any = world.call("user.ask", {"question": question}, MAIN).body
            return str(reply["answer"])

        sentence = goal.slots["sentence"]
        assert ask(f"Please tell me: which {goal.slots['label']}?").startswith(sentence)
        assert not ask("Shall I begin?").startswith(sentence)
        value = ask(f"{goal.slots['label']}?").removeprefix(sentence)
        assert value not in made.task.instruction
        assert world.state.changes() == []
        reference = Solution("", tuple(made.task.reference(world)[0].calls))
        assert passes(world, made, reference)


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_conditions_are_what_they_say(value: int, bound: int) -> None:
    assert holds(value, "above", bound) == (value > bound)
    assert holds(value, "below", bound) == (value < bound)
    assert holds(value, "equal", bound) == (value == bound)


def test_both_branches_are_drawn() -> None:
    found = {variant("branch", "", seed).task.goals[0].slots["right"] for seed in range(12)}
    assert found == {"yes", "no"}


def test_the_tools_of_a_task_do_not_tell_the_branch() -> None:
    for seed in range(6):
        made = variant("branch", "", seed)
        slots = made.task.goals[0].slots
        with closing(made.open()) as world:
            for branch in ("yes", "no"):
                with closing(world.fork()) as fork:
                    ran = run(slots[branch].atom.steps(slots[branch].slots), fork, MAIN)
                assert {one.api for one in ran.calls} <= set(made.needed)


# ── what texts must mention ──────────────────────────────────────────────────


def test_words_count_only_in_the_mail_that_must_have_them() -> None:
    made = drawn("easy", "", 0)
    with closing(made.open()) as world:
        rng = random.Random(0)
        first, second = (Write().draw(world, rng) for _ in range(2))
        while first is None or second is None or first["name"] == second["name"]:
            second = Write().draw(world, rng)
        task = Composition((Goal(Write(), first), Goal(Write(), second)))
        ways = task.ways(world)
        for words, right in ((None, True), (first["word"], False)):
            with closing(world.fork()) as fork:
                other = second if words is None else {**second, "word": words}
                changed = first if words is None else {**first, "word": second["word"]}
                swapped = Composition((Goal(Write(), changed), Goal(Write(), other)))
                run(swapped.steps(), fork, MAIN)
                verdict = judged(fork, ways, "")
            assert verdict.effect
            assert verdict.wording is right


@given(st.integers(-(10**7), 10**7))
def test_numbers_are_mentioned_however_they_are_written(cents: int) -> None:
    amount = cents / 100
    suite = stock_suite(CORE)
    template = suite.empty()
    world = World(suite, template, "2026-03-02 09:00")
    row = {"owner": 1, "folder": "inbox", "sender": "a@b.c", "recipient": "a@b.c", "subject": ""}
    said = {}
    for text in (f"{amount:.2f}", f"{amount:,.2f}", written(amount), f"{amount + 1:.2f}"):
        with closing(world.fork()) as fork:
            fork.state.insert("mail.message", row | {"body": f"It is {text}, I think."})
            found = Judge(columns(suite.blueprints)).wanted(
                fork.state.changes(),
                run(iter(()), fork, 1),
                [written(amount)],  # type: ignore[arg-type]
            )
            said[text] = bool(found.said)
    world.close()
    assert said.pop(f"{amount + 1:.2f}") is False
    assert all(said.values())
