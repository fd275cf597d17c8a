"""Questions, charts and figures: the parts of pages that can be wrong in silence."""

from __future__ import annotations

import math
import re
from pathlib import Path
from threading import Event
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.store.queries import Filter, TaskStanding
from palaestra.viewer import facts, formatting
from palaestra.viewer.charts import MOST, Frame, Series, line_chart, thinned
from palaestra.viewer.pages.curves_page import bands
from palaestra.viewer.search_query import SearchQuery, parse
from palaestra.viewer.site import Site

numbers = st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", SearchQuery(Filter())),
        ('door "red key" gob*', SearchQuery(Filter(), ("door", "red key", "gob*"))),
        ("env:babyai task:test/1", SearchQuery(Filter(environment="babyai", task="test/1"))),
        ('run:"a b" label:good', SearchQuery(Filter(), (), "a b", "good")),
        ("outcome:truncated(turns)", SearchQuery(Filter(outcome="truncated(turns)"))),
        (
            "outcome:error(crash, environment) x",
            SearchQuery(Filter(outcome="error(crash, environment)"), ("x",)),
        ),
        (
            "reward>0.5 turns<=10",
            SearchQuery(Filter(bounds=(("reward", ">", 0.5), ("turns", "<=", 10.0)))),
        ),
        ("solved:yes", SearchQuery(Filter(solved=True))),
        ("solved:perhaps", SearchQuery(Filter(), ignored=("solved:perhaps",))),
        ("reward>1e", SearchQuery(Filter(), ignored=("reward>1e",))),
        ("a>b http://x", SearchQuery(Filter(), ("a>b", "http://x"))),
    ],
)
def test_a_search_is_parsed(text: str, expected: SearchQuery) -> None:
    assert parse(text) == expected


@given(st.text(max_size=60))
def test_any_text_is_a_search(text: str) -> None:
    assert isinstance(parse(text), SearchQuery)


@given(
    st.lists(st.tuples(st.integers(0, 50), numbers), max_size=40),
    st.lists(st.tuples(st.integers(0, 50), numbers, numbers), max_size=10),
)
def test_any_numbers_make_a_well_formed_chart_within_its_frame(
    points: list[tuple[float, float]], band: list[tuple[float, float, float]]
) -> None:
    chart = line_chart([Series("<a>&", points, band, points)], Frame(), 'title "<b>"')
    sampled = ElementTree.fromstring(str(chart))
    for node in sampled.iter():
        for number in re.findall(r"-?[\d.]+", node.get("d", "")):
            assert -1 <= float(number) <= 321
        assert "nan" not in node.get("d", "") and "inf" not in node.get("d", "")


def test_a_chart_counts_what_it_cannot_draw() -> None:
    chart = line_chart([Series("loss", [(1, math.nan), (2, 1.0)])], Frame(), "loss")
    assert "1 values are not finite" in chart
    assert "not recorded" in line_chart([Series("loss", [])], Frame(), "loss")


def test_a_thinned_line_keeps_its_highest_and_lowest_point() -> None:
    points = [(float(x), math.sin(x)) for x in range(100_000)]
    points[70_001] = (70_001.0, 99.0)
    points[3] = (3.0, -99.0)
    kept = thinned(points)
    assert len(kept) <= MOST + 2 and {points[70_001], points[3]} <= set(kept)
    assert kept == sorted(kept)


def standing(phase: str, group: int, solved: int, scored: int) -> TaskStanding:
    return TaskStanding(phase, group, "w", 4, scored, solved, 1.0 * solved, 2 * scored, 10)


def test_success_is_of_tasks_and_a_task_without_a_result_is_none() -> None:
    found = facts.by_phase([standing("p", 0, 1, 4), standing("p", 1, 1, 1), standing("p", 2, 0, 0)])
    phase = found["p"]
    assert phase.success == pytest.approx((0.25 + 1.0) / 2) and phase.tasks == 2
    assert phase.episodes == 12 and phase.faults == 7 and phase.interval is not None
    nothing = facts.by_phase([standing("p", 0, 0, 0)])["p"]
    assert nothing.success is None and nothing.interval is None and nothing.reward is None


def test_differences_pair_the_same_tasks() -> None:
    tasks = [standing("test/base", g, 0, 4) for g in range(5)]
    tasks += [standing("test/rl", g, 2, 4) for g in range(3)]
    found = facts.differences(tasks)
    assert list(found) == [("rl", "base")]
    assert found["rl", "base"].mean == 0.5 and found["rl", "base"].n == 3


def test_a_band_is_over_the_tasks_of_a_step_and_within_zero_and_one() -> None:
    found = bands([standing("rl/2", g, s, 4) for g, s in enumerate((0, 4, 4))])
    ((step, low, high),) = found
    half = 1.96 * math.sqrt(1 / 3) / math.sqrt(3)
    assert step == 2 and low == pytest.approx(max(0, 2 / 3 - half)) and high == 1.0
    assert bands([standing("rl/1", 0, 1, 4)]) == []


def test_the_telling_phase_is_of_the_last_policy_tested() -> None:
    assert facts.main_phase(["test/base", "rl/1", "test/rl", "transfer/rl"]) == "test/rl"
    assert facts.main_phase(["eval/test"]) == "eval/test" and facts.main_phase([]) == ""


def test_what_takes_long_is_asked_once_and_answered_later(tmp_path: Path) -> None:
    site, go, asked = Site(tmp_path), Event(), []

    def find() -> str:
        asked.append(1)
        assert go.wait(20)
        return "found"

    assert site.soon(tmp_path, "what", find, 0.01) is None
    assert site.soon(tmp_path, "what", find, 0.01) is None
    go.set()
    assert site.soon(tmp_path, "what", find, 20) == "found"
    assert site.soon(tmp_path, "what", find, 0) == "found" and len(asked) == 1
    (tmp_path / "run.sqlite").write_text("changed")
    assert site.soon(tmp_path, "what", find, 0) == "found"  # of a moment ago, which will do
    with pytest.raises(ZeroDivisionError):
        site.soon(tmp_path, "else", lambda: 1 / 0, 20)


@pytest.mark.parametrize(
    ("output", "written"),
    [
        (formatting.percent(0.3751), "37.5 %"),
        (formatting.percent(math.nan), "–"),
        (formatting.count(2_350_000), "2.35 M"),
        (formatting.count(99_999), "99,999"),
        (formatting.seconds(187), "3 min 07 s"),
        (formatting.seconds(7260), "2 h 01 min"),
        (formatting.figure(0.000123456), "0.0001235"),
        (formatting.figure(math.inf), "inf"),
        (formatting.cut("a\n b" + "c" * 300, 10), "a bcccccc…"),
        (formatting.short("/long/path/to/a/model/final", 12), "…model/final"),
        (formatting.money(None), "–"),
        (formatting.money(0.0123), "0.0123"),
    ],
)
def test_figures_are_written_for_people(output: str, written: str) -> None:
    assert output == written
