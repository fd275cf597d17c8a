"""Labels of steps by a model: one per turn, or none."""

from __future__ import annotations

import asyncio

import pytest

from palaestra.evaluation.attribution.base import Ending
from palaestra.evaluation.attribution.counterfactual import Label
from palaestra.evaluation.judges.case import case_of
from palaestra.evaluation.judges.step_labels import WINDOW, first_wrong, labels_in, step_labels
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.evaluation.attribution.worlds import LOOKUP, roll_out

CASE = case_of(roll_out((LOOKUP, "send('p-1')", "finish()")))


def labelled(reply: str) -> list[Label | None]:
    model = ScriptedModel(lambda messages: reply)
    return asyncio.run(step_labels(model, CASE))[0]


@pytest.mark.parametrize(
    ("reply", "labels"),
    [
        ("1: useful\n2: wrong\n3: wrong", [Label.USEFUL, Label.WRONG, Label.WRONG]),
        ("Turn 1: neutral\nso\n3: useful.", [Label.NEUTRAL, None, Label.USEFUL]),
        ("1: useful, neutral or wrong", [None, None, None]),
        ("2: wrong\n2: useful", [None, None, None]),
        ("", [None, None, None]),
    ],
)
def test_labels_are_read_strictly(reply: str, labels: list[Label | None]) -> None:
    assert labelled(reply) == labels


def test_the_first_wrong_turn_lost_it() -> None:
    found = first_wrong(CASE, labelled("1: useful\n2: wrong\n3: wrong"))
    assert (found.ending, found.turn, found.exact) == (Ending.TURN, 1, False)
    assert found.scores == (0.0, 1.0, 1.0)


def test_without_a_wrong_turn_nothing_is_known() -> None:
    found = first_wrong(CASE, labelled("1: useful"))
    assert (found.ending, found.turn) == (Ending.UNKNOWN, None)
    assert "2 of 3 have no label" in found.reason


def test_a_long_episode_is_asked_about_in_parts() -> None:
    count = WINDOW + 3
    case = case_of(roll_out(("status()",) * count, limit=count))
    every = "\n".join(f"{turn}: neutral" for turn in range(1, count + 1))
    labels, cost = asyncio.run(step_labels(ScriptedModel(lambda messages: every), case))
    assert labels == [Label.NEUTRAL] * count
    assert cost.calls == 2


def test_turns_that_do_not_exist_are_left_out() -> None:
    assert labels_in("9: wrong") == {9: Label.WRONG}
    assert labelled("9: wrong") == [None, None, None]
