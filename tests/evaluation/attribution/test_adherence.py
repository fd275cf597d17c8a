"""Adherence: following the procedure is distinguished from reaching the goal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.evaluation.attribution.adherence import Procedure, adherence, journey_score, paths
from tests.evaluation.made import SUCCESS, episode

# Identify the customer, look the order up, then refund or decline; a refund is confirmed.
REFUND = Procedure(
    starts=frozenset({"identify"}),
    follows={
        "identify": frozenset({"order"}),
        "order": frozenset({"refund", "decline"}),
        "refund": frozenset({"confirm"}),
    },
    ends=frozenset({"confirm", "decline"}),
)


def calling(*names: str, invalid: tuple[int, ...] = (), **arguments: object) -> Episode:
    recorded = episode("eval/test", 0, SUCCESS, list(names), invalid=invalid)
    steps = tuple(
        replace(step, action=Action(name, ToolCall(name, arguments)))
        for step, name in zip(recorded.steps, names, strict=True)
    )
    return replace(recorded, steps=steps)


def test_a_full_journey_is_kept() -> None:
    found = adherence(calling("identify", "order", "refund", "confirm"), REFUND)
    assert found.kept and found.share == 1 and found.first_breach is None


def test_a_skipped_step_is_a_breach_though_the_task_is_solved() -> None:
    found = adherence(calling("identify", "refund", "confirm"), REFUND)
    assert not found.kept
    assert (found.taken, found.allowed, found.first_breach) == (3, 1, 1)


def test_a_breach_does_not_excuse_what_follows_from_it() -> None:
    found = adherence(calling("identify", "refund", "order", "decline"), REFUND)
    assert (found.allowed, found.first_breach, found.ended, found.kept) == (3, 1, True, False)


def test_stopping_half_way_breaks_nothing_and_keeps_nothing() -> None:
    found = adherence(calling("identify", "order"), REFUND)
    assert (found.share, found.first_breach, found.ended, found.kept) == (1, None, False, False)


def test_other_tools_and_calls_that_were_not_understood_are_no_steps() -> None:
    recorded = calling("search", "identify", "refund", "order", "decline", invalid=(2,))
    assert adherence(recorded, REFUND).kept
    nothing = adherence(calling("search"), REFUND)
    assert (nothing.taken, nothing.share, nothing.kept) == (0, None, False)


def test_actions_in_words_are_read_as_calls_of_the_tools() -> None:
    schema = {"type": "object", "properties": {}, "required": []}
    tools = [Tool(name, "", schema) for name in ("identify", "order", "decline")]
    recorded = episode("eval/test", 0, SUCCESS, ["identify()", "hello", "order()", "decline()"])
    assert adherence(recorded, REFUND, tools).kept
    assert adherence(recorded, REFUND).taken == 0


def test_every_way_through_a_procedure_is_kept_and_every_shorter_one_is_not() -> None:
    routes = paths(REFUND)
    assert routes == [
        ("identify", "order", "decline"),
        ("identify", "order", "refund", "confirm"),
    ]
    for plan in routes:
        assert adherence(calling(*plan), REFUND).kept
        for skipped in range(len(plan)):
            assert not adherence(calling(*plan[:skipped], *plan[skipped + 1 :]), REFUND).kept


@given(st.lists(st.sampled_from(["identify", "order", "refund", "decline", "confirm", "chat"])))
def test_a_breach_is_where_not_all_steps_are_allowed(names: list[str]) -> None:
    found = adherence(calling(*names), REFUND)
    assert 0 <= found.allowed <= found.taken == sum(name != "chat" for name in names)
    assert (found.first_breach is None) == (found.allowed == found.taken)
    assert not found.kept or found.ended


def test_a_journey_scores_its_arguments_only_if_its_order_was_kept() -> None:
    expected = [ToolCall("identify", {"id": 7, "name": "Ann"}), ToolCall("order", {})]
    assert journey_score(calling("identify", "order", id=7, name="Ann"), expected) == 1
    assert journey_score(calling("identify", "order", id=7, name="Bob"), expected) == 0.75
    assert journey_score(calling("identify", "chat", "order", id=7), expected) == 0.75
    assert journey_score(calling("order", "identify", id=7, name="Ann"), expected) == 0
    assert journey_score(calling("identify", id=7, name="Ann"), expected) == 0
    twice = calling("identify", "identify", "order", id=7, name="Ann")
    assert journey_score(twice, expected) == 0


def test_procedures_without_sense_are_refused() -> None:
    with pytest.raises(InputError, match="first step"):
        Procedure(starts=frozenset())
    with pytest.raises(UnknownName, match="'confirm'"):
        replace(REFUND, ends=frozenset({"confrm"}))
    with pytest.raises(InputError, match="expected"):
        journey_score(calling("identify"), [])
    every = frozenset(map(str, range(9)))
    with pytest.raises(InputError, match="more than 100"):
        paths(Procedure(every, dict.fromkeys(every, every), every), limit=100)
