"""Stored alarms are those that were raised, once per step, and stay unchanged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from palaestra.learning.loop.alarms import Raised, after, found_again, store_alarms, stored_alarms
from palaestra.learning.loop.monitors import Alarm
from palaestra.store.database import Database


def alarm(step: int, name: str = "engine_gap", value: float = 0.2) -> Alarm:
    return Alarm(name, f"Step {step}: so it is.", step, value, 0.05)


def test_an_alarm_says_since_when_and_how_long() -> None:
    rows = [(step, {"gap": 0.2 if 5 <= step < 90 else 0.0}) for step in range(1, 121)]
    (raised,) = found_again(rows).values()
    assert raised.first.name == "engine_gap" and raised.first.step == 5
    assert raised.first.value == pytest.approx(0.2 / 3) and raised.first.threshold == 0.05
    assert raised.last == 91 and raised.steps == 87


def test_a_step_that_is_made_again_after_a_crash_counts_once() -> None:
    standing = after(after({}, [alarm(5)]), [alarm(6)])
    again = after(after(standing, [alarm(5)]), [alarm(6)])
    assert again == standing
    assert after(again, [alarm(7)])["engine_gap"] == Raised(alarm(5), 7, 3)


def test_what_is_kept_with_a_run_comes_back_and_none_is_not_unknown(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "run.sqlite")
    assert stored_alarms(database, "rl") is None
    store_alarms(database, "rl", {})
    assert stored_alarms(database, "rl") == {}
    standing = after({}, [alarm(3), alarm(3, "discard_rate", 0.9)])
    store_alarms(database, "rl", standing)
    assert stored_alarms(database, "rl") == standing
    store_alarms(database, "rl", after({}, [alarm(3, value=math.nan)]))
    rows = database.get("alarms/rl") or []
    assert [row["value"] for row in rows] == [None]  # JSON knows no other word for it
    database.close()
