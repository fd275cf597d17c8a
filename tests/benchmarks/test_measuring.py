"""Rounds alternate, medians count, and every row has the same keys."""

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import PeerUnavailable, Result, alternate, commit, machine, report, run

KEYS = {
    "name",
    "ratio",
    "goal",
    "low",
    "high",
    "limit_fraction",
    "machine",
    "commit",
    "figures",
}
rates = st.floats(0.01, 1e6)


def result(**changes) -> Result:
    known = {"name": "a", "ratio": 2.0, "goal": 1.5, "low": 1.9, "high": 2.1}
    return Result(**{**known, "machine": "here", "commit": "now", **changes})


def test_the_order_alternates_and_ours_begins():
    order = []

    def side(name):
        def measured():
            order.append(name)
            return 1.0

        return measured

    alternate(side("ours"), side("theirs"), rounds=3)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]


@given(st.lists(st.tuples(rates, rates), min_size=1, max_size=9))
def test_the_ratio_is_the_median_of_the_rounds_ratios(pairs):
    ours, theirs = iter([a for a, _ in pairs]), iter([b for _, b in pairs])
    found = alternate(lambda: next(ours), lambda: next(theirs), rounds=len(pairs))
    ratios = [a / b for a, b in pairs]
    assert found.ratios == tuple(ratios)
    assert found.ratio == statistics.median(ratios)
    assert (found.low, found.high) == (min(ratios), max(ratios))
    assert found.ours == statistics.median(a for a, _ in pairs)
    assert found.theirs == statistics.median(b for _, b in pairs)


@pytest.mark.parametrize(("rate", "rounds"), [(1.0, 0), (0.0, 1), (-1.0, 1)])
def test_what_cannot_be_a_measurement_is_refused(rate, rounds):
    with pytest.raises(ValueError, match=r"measure|positive"):
        alternate(lambda: rate, lambda: 1.0, rounds=rounds)


def test_one_result_is_an_object_and_several_are_an_array(capsys):
    report([result()], as_json=True)
    one = json.loads(capsys.readouterr().out)
    report([result(), result(name="b", limit_fraction=0.5)], as_json=True)
    several = json.loads(capsys.readouterr().out)
    assert one.keys() == KEYS
    assert [row.keys() for row in several] == [KEYS, KEYS]
    assert several[0] == one


def test_a_line_tells_the_distance_to_the_goal_and_to_the_limit(capsys):
    report([result(ratio=1.2, limit_fraction=0.25, figures={"ours tokens/s": 120.0})], False)
    line = capsys.readouterr().out
    assert "goal 1.5 missed (-20%)" in line
    assert "25% of the limit" in line
    assert "ours tokens/s 120" in line


@pytest.mark.parametrize(
    ("ratio", "goal", "reached"), [(1.5, 1.5, True), (1.4, 1.5, False), (0.1, None, True)]
)
def test_a_goal_is_reached_at_its_figure(ratio, goal, reached):
    assert result(ratio=ratio, goal=goal).reached is reached


def test_results_say_where_they_come_from():
    made = Result("a", 1.0, None, 1.0, 1.0)
    assert made.machine == machine() and "cores" in made.machine
    assert made.commit == commit() and made.commit


def test_without_its_peer_a_benchmark_reports_why_and_prints_no_number(capsys, monkeypatch):
    def measure(options):
        raise PeerUnavailable("there is no such package")

    monkeypatch.setattr("sys.argv", ["a benchmark", "--json"])
    with pytest.raises(SystemExit) as ended:
        run("About it.", measure)
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert printed.err == "not measured: there is no such package\n"
