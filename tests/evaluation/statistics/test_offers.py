"""Scores of offers, counted by hand."""

from __future__ import annotations

import pytest

from palaestra.core.environment import Action
from palaestra.evaluation.statistics.offers import offer_scores, steps_of
from tests.evaluation.statistics.test_tool_habits import lived


def test_precision_recall_and_false_alarms_are_counted_per_decision() -> None:
    accepted, wrong = {"wanted": True, "offer": "accepted"}, {"wanted": True, "offer": "declined"}
    alarm, silent, missed = (
        {"wanted": False, "offer": "declined"},
        {"wanted": False},
        {"wanted": True},
    )
    found = offer_scores([accepted, wrong, alarm, silent, silent, silent, missed, {"status": 200}])
    assert found.decisions == 7
    assert found.precision is not None and found.precision.mean == pytest.approx(1 / 3)
    assert found.recall is not None and found.recall.mean == pytest.approx(1 / 3)
    assert found.false_alarms is not None and found.false_alarms.mean == pytest.approx(1 / 4)
    assert found.f1 == pytest.approx(1 / 3)


def test_without_offers_there_is_no_precision_and_recall_is_zero() -> None:
    found = offer_scores([{"wanted": True}, {"wanted": False}])
    assert found.precision is None and found.f1 == 0
    assert found.recall is not None and found.recall.mean == 0


def test_steps_without_decisions_count_for_nothing() -> None:
    assert offer_scores(steps_of([lived((Action("read()"), "…"))])).decisions == 0
