"""Advice: the best that fits, the cheapest that may be as good, and every doubt reported."""

from __future__ import annotations

import json

import pytest

from palaestra.core.errors import InputError
from palaestra.evaluation.reports.advice import Constraints, Fit, advise, as_json
from palaestra.evaluation.reports.leaderboard import Leaderboard, build
from tests.evaluation.boards import OTHER, WORLD, cell, part, sample, simple, suite

STRONG, WEAK = "1" * 36 + "0" * 4, "1" * 6 + "0" * 34


def board() -> Leaderboard:
    near = "1" * 33 + "0" * 7
    return build(
        [
            simple("strong", STRONG, tokens=900.0),
            simple("near", near, tokens=300.0),
            simple("weak", WEAK, tokens=20.0),
        ]
    )


def test_the_best_and_the_cheapest_that_may_be_as_good_are_named() -> None:
    found = advise(board(), Constraints())
    assert found.best is not None and found.frugal is not None
    assert (found.best.model, found.frugal.model) == ("strong", "near")
    output = " ".join(found.sentences)
    assert "direct, near (82.5 %) may be as good" in output
    assert "direct, weak" not in output  # its interval is far away
    assert "300 tokens per task, against 900" in output


def test_a_clear_winner_is_marked_as_one() -> None:
    found = advise(build([simple("strong", STRONG), simple("weak", WEAK)]), Constraints())
    assert "no other candidate that fits may be as good" in found.sentences[-1]
    weak = next(v for v in found.verdicts if v.candidate.model == "weak")
    assert weak.behind is not None and weak.behind.above_zero


def test_a_candidate_that_surely_breaks_a_constraint_is_out_with_the_reason() -> None:
    found = advise(board(), Constraints(tokens=500))
    assert found.best is not None and found.best.model == "near"
    out = next(v for v in found.verdicts if v.candidate.model == "strong")
    assert (out.fit, out.reasons) == (Fit.FAILS, ("900 tokens per task, more than 500",))


def test_a_success_that_may_be_too_low_is_a_doubt_not_a_failure() -> None:
    found = advise(board(), Constraints(success=0.8))
    fits = {v.candidate.model: v.fit for v in found.verdicts}
    assert fits == {"strong": Fit.MAY, "near": Fit.MAY, "weak": Fit.FAILS}
    assert any("But this is uncertain: its success 90.0 %" in output for output in found.sentences)


def test_a_cost_whose_interval_reaches_over_the_bound_is_a_doubt() -> None:
    samples = [sample(t, True, tokens=float(100 + 100 * (t % 2))) for t in range(8)]
    only = build([part(cell(tasks=8), samples)])
    assert advise(only, Constraints(tokens=160)).verdicts[0].fit is Fit.MAY
    assert advise(only, Constraints(tokens=201)).verdicts[0].fit is Fit.MEETS
    assert advise(only, Constraints(tokens=99)).verdicts[0].fit is Fit.FAILS


def test_when_no_one_fits_that_is_the_advice() -> None:
    found = advise(board(), Constraints(tokens=1))
    assert found.best is None
    assert found.sentences[0].startswith("No candidate fits.")
    assert "direct, weak: 20 tokens per task, more than 1" in found.sentences[0]


def test_a_candidate_that_lacks_a_world_is_never_taken() -> None:
    both = suite((WORLD, 4, 1.0), (OTHER, 4, 1.0))
    parts = [
        simple("whole", "1000"),
        simple("whole", "1000", OTHER),
        simple("part", "1111"),
    ]
    found = advise(build(parts, both), Constraints())
    assert found.best is not None and found.best.model == "whole"
    with pytest.raises(InputError, match="No candidate has results on the whole suite"):
        advise(build(parts[2:], both), Constraints())


@pytest.mark.parametrize(
    ("constraints", "cost", "output"),
    [
        (Constraints(success=50), "tokens", "success of 50 is invalid"),
        (Constraints(money=1.0), "tokens", "money of direct, strong are unknown"),
        (Constraints(), "luck", "no cost 'luck'"),
    ],
)
def test_what_cannot_be_is_named(constraints: Constraints, cost: str, output: str) -> None:
    with pytest.raises(InputError, match=output):
        advise(build([simple("strong", STRONG)]), constraints, cost)


def test_the_worlds_own_solution_is_a_bound_and_no_choice() -> None:
    bounded = build([simple("expert", "1" * 40, tokens=0.0), simple("strong", STRONG)])
    assert [c.model for c in bounded.ranked] == ["expert", "strong"]
    assert [c.model for c in bounded.front("tokens")] == ["strong"]
    found = advise(bounded, Constraints())
    assert found.best is not None and found.best.model == "strong"


def test_advice_is_json() -> None:
    shown = json.loads(json.dumps(as_json(advise(board(), Constraints()))))
    assert (shown["best"], shown["frugal"]) == ("direct, strong", "direct, near")
    assert shown["verdicts"][0]["name"] == "direct, strong"
    assert shown["verdicts"][1]["behind"]["low"] < 0 < shown["verdicts"][1]["behind"]["high"]


def test_equal_ones_are_distinguished_by_cost_alone() -> None:
    twins = build([simple("dear", "1100", tokens=9.0), simple("cheap", "1100", tokens=3.0)])
    found = advise(twins, Constraints())
    assert found.frugal is not None and found.frugal.model == "cheap"
