"""Forbidden: twins of which the rules forbid one, and what behaviour that ignores them reaches."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.apps.composing.clauses import KINDS, NEVER
from palaestra.environments.families.apps.composing.forbidden import DEED, DONE, REFUSAL, REFUSED
from palaestra.environments.families.apps.composing.gate import CONSTANT, judged, near_misses
from palaestra.environments.families.apps.composing.goal import MAIN, Slots, call
from palaestra.environments.families.apps.composing.policy import Clause, Mark, Rule, broken
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.composing.wrong_solutions import wrong_solutions
from palaestra.environments.families.apps.drawing import Drawn
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.twins import pair
from palaestra.environments.families.apps.world import Called

SUFFIXES = ("", "challenge", "new")
PAIRS = [(kind, number) for kind in SUFFIXES for number in range(4)]


def slots_of(made: Drawn) -> Slots:
    return made.task.goals[0].slots


def solved(made: Drawn, slots: Slots) -> bool:
    """Return whether the goal's calls with other slots, and their answer, are a success."""
    with closing(made.open()) as world:
        ran = run(made.task.steps(0, slots), world, MAIN)
        return judged(world, made.ways, ran.answer).success


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of("apps/forbidden:discover"))


@pytest.mark.parametrize(("kind", "number"), PAIRS)
def test_twins_differ_only_in_what_the_rules_say_or_the_person_answers(
    kind: str, number: int
) -> None:
    one, other = pair(kind, number, 2)
    assert {slots_of(one)["permitted"], slots_of(other)["permitted"]} == {True, False}
    assert one.task.instruction == other.task.instruction
    assert set(one.needed) == set(other.needed)
    rules = [[clause.rule.words for clause in made.task.policy] for made in (one, other)]
    with closing(one.open()) as world, closing(other.open()) as twin:
        tables = [table for table in world.state.columns if table != "user.fact"]
        assert all(world.state.rows(table) == twin.state.rows(table) for table in tables)
        facts = [each.state.rows("user.fact") for each in (world, twin)]
    differing = sum(mine != theirs for mine, theirs in zip(*rules, strict=True))
    assert (differing, facts[0] != facts[1]) in ((1, False), (0, True))


@pytest.mark.parametrize(("kind", "number"), PAIRS)
def test_behaviour_that_ignores_the_rules_solves_one_of_two_twins_at_most(
    kind: str, number: int
) -> None:
    twins = pair(kind, number, 2)
    for does, says, most in ((DEED, DONE, 1), (DEED, REFUSED, 0), (REFUSAL, REFUSED, 1)):
        for asks in (True, False):
            more = {"does": does, "says": says, "asks": asks}
            assert sum(solved(made, {**slots_of(made), **more}) for made in twins) <= most
    for made in twins:
        assert solved(made, slots_of(made))
        with closing(made.open()) as world:
            assert not any(judged(world, made.ways, words).success for words in (*CONSTANT, DONE))


@pytest.mark.parametrize(("kind", "number"), PAIRS)
def test_near_misses_and_wrong_solutions_are_rejected(kind: str, number: int) -> None:
    for made in pair(kind, number, 2):
        rng = random.Random(number)
        with closing(made.open()) as world:
            misses = [slots for _, slots in near_misses(world, made.task, rng)]
            wrong = list(wrong_solutions(world, made.task, rng))
            for solution in wrong:
                with closing(world.fork()) as fork:
                    for one in solution.calls:
                        fork.call(one.api, one.arguments, MAIN)
                    assert not judged(fork, made.ways, solution.answer).success, solution
        assert len(misses) + len(wrong) >= 6
        assert not any(solved(made, slots) for slots in misses)


def test_all_kinds_of_rules_are_drawn() -> None:
    drawn = {slots_of(pair("", number, 0)[0])["twins"].kind for number in range(20)}
    assert drawn == set(KINDS)


@pytest.mark.slow
def test_whom_an_answer_goes_to_is_known_from_the_message_and_the_contacts() -> None:
    made = next(
        made
        for number in range(60)
        for made in pair("", number, 1)
        if slots_of(made)["twins"].kind == "relation"
        if slots_of(made)["changes"] == "mail.reply_message"
        if not slots_of(made)["permitted"]
    )
    with closing(made.open()) as world:
        read = [one.api for one in made.task.reference(world)[0].calls]
    assert sorted(read) == ["contacts.search_contacts", "mail.search_messages"]
    assert solved(made, slots_of(made))
    assert not solved(made, {**slots_of(made), "does": DEED})


# ── rules ────────────────────────────────────────────────────────────────────


def test_what_is_forbidden_and_undone_has_broken_the_rule() -> None:
    made = next(
        made
        for number in range(40)
        for made in pair("", number, 0)
        if slots_of(made)["changes"] == "contacts.create_contact"
        if not slots_of(made)["permitted"]
    )
    with closing(made.open()) as world:
        undone = {**slots_of(made), "does": "undone", "says": REFUSED}
        ran = run(made.task.steps(0, undone), world, MAIN)
        verdict = judged(world, made.ways, ran.answer)
        assert len(world.changing_calls()) == 2
        assert world.state.changes() == []
    assert verdict.effect
    assert verdict.answer
    assert not verdict.collateral
    assert verdict.policy == (slots_of(made)["twins"].kind,)
    assert not verdict.success


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_limit_is_broken_by_what_is_above_it_alone(amount: float, bound: float) -> None:
    mark = Mark("it", frozenset({"bank.send_money"}), "amount", above=bound)
    clauses = [Clause(Rule("limit", "", NEVER), (mark,))]
    paid = Called("bank.send_money", {"amount": amount}, 200)
    assert bool(broken(clauses, [paid])) == (amount > bound)
    assert not broken(clauses, [replace(paid, status=409)])


def test_a_yes_counts_only_before_the_change() -> None:
    made = next(
        made
        for number in range(20)
        for made in pair("", number, 0)
        if slots_of(made)["twins"].kind == "consent" and slots_of(made)["permitted"]
    )
    with closing(made.open()) as world:
        calls = made.task.reference(world)[0].calls
        assert calls[0].api == "user.ask"
        found = {}
        weather = call("user.ask", question="How is the weather today?")
        orders = {
            "right": calls,
            "late": [*calls[1:], calls[0]],
            "other": [weather, *calls[1:]],
            "twice": [weather, *calls],
        }
        for name, order in orders.items():
            with closing(world.fork()) as fork:
                for one in order:
                    assert fork.call(one.api, one.arguments, MAIN).ok
                found[name] = judged(fork, made.ways, DONE).success
    assert found == {"right": True, "late": False, "other": False, "twice": True}


# ── the environment ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["", ":all", ":discover", ":code"])
def test_references_solve_and_constant_answers_do_not(form: str) -> None:
    env = Apps(f"forbidden{form}")
    tasks = Apps.tasks(f"apps/forbidden{form}").take(Split.TEST, 4)
    assert [task.parameters["scenario"] for task in tasks] == [0, 0, 1, 1]
    refusals = 0
    for task in tasks:
        seen = env.reset(task).text
        assert all(f"- {clause.rule.words}" in seen for clause in env._drawn.task.policy)
        steps = [env.step(action) for action in env.oracle()]
        assert steps[-1].success
        assert steps[-1].info["policy"] == []
        env.reset(task)
        refusals += env.step(Action(f'finish(answer="{REFUSED}")')).success
    assert refusals == 2
    assert 'finish(answer="refused")' in env.instructions


def test_a_task_of_another_pair_is_refused() -> None:
    task = Apps.tasks("apps/forbidden").task(Split.TRAIN, 2)
    with pytest.raises(InputError, match="belongs to the scenario 1"):
        Apps("forbidden").reset(replace(task, parameters={"scenario": 2}))
