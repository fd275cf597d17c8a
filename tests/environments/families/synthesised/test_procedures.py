"""Procedures are read as graphs, their paths cover every edge, and every turn is checked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.task import Task
from palaestra.environments.families.synthesised.procedure_desk import ProcedureDesk, rejected
from palaestra.environments.families.synthesised.procedures import (
    Procedure,
    covering_paths,
    parse_procedure,
)
from tests.synthesis.made import COUNTY, lines, made

RETURNS = """\
Returns
1. Ask for the order number.
2. Call find_order(order number).
   delivered: go to 3
   lost: go to 5
   unknown: go to 1
3. Ask for the reason.
4. Call book_return(order number, reason).
   booked: go to 6
   refused: go to 5
5. Say "A colleague will write to you." End.
6. Say "Your return is booked." End.
"""
SLOTS = {"order number": "amber-1", "reason": "too small"}
TASK = Task("paths/0", "procedures/county", seed=0)


@pytest.fixture
def returns() -> Procedure:
    return parse_procedure(RETURNS, "returns.txt")


def test_paths_cover_every_edge_and_follow_the_graph(returns: Procedure) -> None:
    paths = covering_paths(returns)
    followed = {step for path in paths for step in path}
    assert {(at, out) for at, ways in returns.edges.items() for out in ways} <= followed
    for path in paths:
        assert path[0][0] == 1
        assert returns.steps[path[-1][0]].says
        for (at, outcome), (after, _) in pairwise(path):
            assert returns.edges[at][outcome] == after


def test_each_path_passes_the_gate(returns: Procedure) -> None:
    desks = [ProcedureDesk(returns, path, SLOTS) for path in covering_paths(returns)]
    other = ProcedureDesk(returns, covering_paths(returns)[0], {**SLOTS, "order number": "b-2"})
    for desk in desks:
        assert rejected(desk, TASK, [*desks, other]) is None


def test_one_wrong_turn_loses_the_conversation_and_not_the_turns_before(
    returns: Procedure,
) -> None:
    path = max(covering_paths(returns), key=len)
    desk = ProcedureDesk(returns, path, SLOTS)
    desk.reset(TASK)
    actions = desk.oracle()
    wrong = [*actions[:-1], Action("Goodbye.")]
    ended = [desk.step(action) for action in wrong][-1]
    assert (ended.terminated, ended.success) == (True, False)
    assert desk.progress() == (len(path) - 1) / len(path)
    assert desk.oracle() == []


def test_a_call_with_another_value_is_a_wrong_turn(returns: Procedure) -> None:
    desk = ProcedureDesk(returns, covering_paths(returns)[0], SLOTS)
    desk.reset(TASK)
    assert "amber-1" in desk.step(Action("What is your order number?")).observation.text
    assert desk.step(Action('find_order(order_number="amber-2")')).success is False


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("3. Ask for the reason.", "3. Wonder.", "line 7: 'Wonder.' is no step"),
        ("lost: go to 5", "lost: go to 9", "line 3: it goes on with a step that is not there"),
        ("lost: go to 5", "lost -> 5", "line 5: write"),
        ("booked: go to 6", "booked: go to 5", "line 12: no step leads here"),
        ("(order number, reason)", "(order number, size)", "line 8: nobody has asked for the size"),
        ("6. Say", "5. Say", "line 12: step 5 is there twice"),
        ("delivered: go to 3", "delivered: go to 2", "no step leads here"),
    ],
)
def test_a_procedure_that_cannot_be_followed_is_refused_with_its_line(
    old: str, new: str, said: str
) -> None:
    with pytest.raises(InputError) as error:
        parse_procedure(RETURNS.replace(old, new), "returns.txt")
    assert said in str(error.value)


def test_a_loop_without_an_end_is_refused() -> None:
    text = "Loop\n1. Ask for the name.\n2. Call look(name).\n   found: go to 1\n"
    with pytest.raises(InputError, match="line 2: it never ends"):
        parse_procedure(text, "loop.txt")


def test_conversations_become_rows(tmp_path: Path) -> None:
    domain = COUNTY.model_copy(
        update={"tasks": 1, "procedures": {"returns.txt": RETURNS}, "conversations": 2}
    )
    found = {one.stage: one for one in made(tmp_path / "made", domain)}
    paths = len(covering_paths(parse_procedure(RETURNS, "returns.txt")))
    assert found["paths"].made == found["conversations"].made == 2 * paths
    assert found["rows"].made == 2 * paths + 1
    last = lines(tmp_path / "made", "rows")[-1]
    assert last["environment"] == "procedures/county"
    assert last["solved"] is True
