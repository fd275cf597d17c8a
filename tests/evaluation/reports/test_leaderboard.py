"""Leaderboards: what belongs together is joined, what does not compare is left out."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.evaluation.reports import leaderboard_text as text
from palaestra.evaluation.reports.leaderboard import build
from palaestra.evaluation.statistics.intervals import Interval, wilson
from palaestra.evaluation.statistics.overall import combined, gap, rate
from tests.evaluation.boards import (
    OTHER,
    WORLD,
    cell,
    outcome,
    part,
    sample,
    simple,
    suite,
)

# ── joining ──────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_shards_joined_in_any_order_score_exactly_as_one_run(
    shards: list[int], random_source: object
) -> None:
    of = cell(tasks=len(shards))
    solved = [0.1 * place for place in range(len(shards))]
    samples = [
        sample(t, t % 3 == 0, reward=solved[t], tokens=7.3 * t, progress=0.1 * t)
        for t in range(len(shards))
    ]
    parts = [
        part(
            of,
            [s for s, shard in zip(samples, shards, strict=True) if shard == which],
            day=9 - which,
        )
        for which in range(4)
    ]
    random_source.shuffle(parts)  # type: ignore[attr-defined]
    joined, whole = build(parts).candidates[0], build([part(of, samples)]).candidates[0]
    assert joined.success == whole.success
    assert joined.means == whole.means
    assert joined.scores == whole.scores
    assert joined.ranked


def test_a_missing_shard_is_shown_but_not_ranked() -> None:
    board = build([part(cell(), outcome("11")), simple("n", "1000")])
    lacking = next(c for c in board.candidates if c.model == "m")
    assert not lacking.ranked
    assert lacking.missing == (f"2 of 4 episodes on {WORLD}",)
    assert [c.model for c in board.candidates] == ["n", "m"]
    assert any("direct, m is not ranked" in note for note in text.remarks(board))


def test_what_infrastructure_broke_is_not_done_and_what_a_world_broke_is_no_score() -> None:
    broken = [
        sample(0, False, scored=False, infrastructure=True),
        sample(1, False, scored=False),
        sample(2, True),
        sample(3, True),
    ]
    found = build([part(cell(), broken)]).candidates[0].standings[WORLD]
    assert (found.episodes, found.planned, found.faults) == (3, 4, 2)
    assert found.by_task == {2: 1.0, 3: 1.0}


def test_seeds_and_repeats_of_a_task_are_averaged_before_tasks_are_counted() -> None:
    parts = [
        part(cell(seed=seed), outcome(solved, seed=seed))
        for seed, solved in ((1, "1100"), (2, "1000"))
    ]
    found = build(parts).candidates[0]
    assert found.scores[WORLD] == {0: 1.0, 1: 0.5, 2: 0.0, 3: 0.0}
    assert found.success is not None
    assert found.success.n == 4  # not eight


def test_of_an_episode_in_two_runs_the_newer_counts_and_it_is_reported() -> None:
    board = build([part(cell(), outcome("1111"), day=2), part(cell(), outcome("0000"), day=1)])
    assert board.candidates[0].success == wilson(4, 4)
    assert any("4 episodes are in two runs" in note for note in board.notes)


# ── comparing only what compares ─────────────────────────────────────────────


@pytest.mark.parametrize(
    ("terms", "output"),
    [
        ({"turns": 9}, "turns 9 against 6"),
        ({"seconds": 5.0}, "seconds 5.0 against None"),
        ({"tokens": 50}, "tokens 50 against None"),
        ({"tasks": (0, 1)}, "2 tasks against 4 other ones"),
    ],
)
def test_other_terms_on_a_world_are_left_out_with_the_reason(
    terms: dict[str, object], output: str
) -> None:
    other = cell("n", **terms)
    board = build([simple("m", "1100"), part(other, outcome("11"), day=2)])
    assert [c.model for c in board.candidates] == ["m"]
    assert board.notes == (f"left out: direct with n on {WORLD}: {output}",)


def test_the_same_model_set_up_otherwise_is_another_candidate() -> None:
    parts = [part(cell(temperature=t), outcome(s)) for t, s in ((1.0, "1110"), (0.0, "1000"))]
    names = [c.name for c in build(parts).candidates]
    assert names == [
        "direct, m (temperature 1, 8 tokens a reply)",
        "direct, m (temperature 0, 8 tokens a reply)",
    ]


def test_the_suite_says_what_counts_and_how_much() -> None:
    asked = suite((WORLD, 4, 3.0), (OTHER, 4, 1.0))
    parts = [simple("m", "1111"), simple("m", "0000", OTHER), simple("m", "1", "probe/sea-3")]
    board = build(parts, asked)
    found = board.candidates[0]
    assert found.success is not None
    assert found.success.mean == 0.75
    assert any("the suite made v1" in note and "probe/sea-3" in note for note in board.notes)


def test_a_candidate_without_a_world_of_the_suite_is_not_ranked() -> None:
    board = build([simple("m", "1111")], suite((WORLD, 4, 1.0), (OTHER, 4, 1.0)))
    assert board.candidates[0].missing == (f"no result on {OTHER}",)


def test_runs_of_two_suites_are_compared_world_by_world_and_the_difference_is_reported() -> None:
    first, second = suite((WORLD, 4, 1.0)), suite((WORLD, 4, 2.0), version=2)
    parts = [
        part(cell("m"), outcome("1111"), suite=first),
        part(cell("n"), outcome("1100"), suite=second, day=2),
    ]
    board = build(parts)
    assert board.suite is None
    assert "not comparable as wholes: version 1 against 2" in board.notes[0]
    assert [c.model for c in board.ranked] == ["m", "n"]


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(InputError, match="does not have that environment"):
        build([simple("m", "1")], suite((OTHER, 1, 1.0)))


def test_several_versions_of_palaestra_are_reported() -> None:
    board = build([simple("m", "1"), part(cell("n", tasks=1), outcome("1"), version="0.2.0")])
    assert board.notes == ("the runs are of several versions of palaestra: 0.1.0, 0.2.0",)


# ── the front ────────────────────────────────────────────────────────────────


def test_the_front_holds_whom_no_one_beats_in_success_and_cost() -> None:
    parts = [
        simple("cheap", "1000", tokens=10),
        simple("dear", "1111", tokens=900),
        simple("beaten", "1100", tokens=950),
        simple("middle", "1100", tokens=100),
    ]
    board = build(parts)
    assert [c.model for c in board.front("tokens")] == ["cheap", "middle", "dear"]
    assert [c.model for c in board.front("turns")] == ["dear"]
    with pytest.raises(InputError, match=r"money of .* are unknown"):
        board.front("money")
    with pytest.raises(InputError, match="no cost 'time'"):
        board.front("time")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=6))
def test_everyone_off_the_front_is_beaten_by_someone_on_it(made: list[tuple[int, int]]) -> None:
    parts = [
        simple(f"m{i}", "1" * solved + "0" * (4 - solved), tokens=float(tokens))
        for i, (solved, tokens) in enumerate(made)
    ]
    board = build(parts)
    front = board.front("tokens")

    def beats(a: object, b: object) -> bool:
        return (
            a.success.mean >= b.success.mean  # type: ignore[attr-defined]
            and a.means["tokens"] <= b.means["tokens"]  # type: ignore[attr-defined]
        )

    for one in board.ranked:
        others = [two for two in front if two is not one and beats(two, one)]
        if one in front:
            assert not others
        else:
            assert others


# ── intervals over worlds ────────────────────────────────────────────────────


def test_one_world_alone_keeps_its_own_interval() -> None:
    assert combined([wilson(3, 8)], [2.0]) == wilson(3, 8)


def test_a_world_that_is_all_alike_still_has_a_width() -> None:
    whole = combined([wilson(8, 8), wilson(8, 8)], [1, 1])
    assert whole.mean == whole.high == 1.0
    assert 0.7 < whole.low < 0.9
    assert rate([0.5, 0.5]) == Interval(0.5, 0.0, 1.0, 2)


def test_the_interval_over_worlds_covers_what_it_claims() -> None:
    rng = np.random.default_rng(5)
    truth, weights, tasks = [0.1, 0.5, 0.95], [1.0, 0.5, 1.0], 12
    aimed = float(np.dot(truth, weights) / sum(weights))
    covered = 0
    for _ in range(600):
        parts = [wilson(int(rng.binomial(tasks, p)), tasks) for p in truth]
        whole = combined(parts, weights)
        covered += whole.low <= aimed <= whole.high
    assert 0.92 <= covered / 600 <= 0.99


def test_the_paired_gap_covers_what_it_claims_and_is_narrower_than_an_unpaired_one() -> None:
    rng = np.random.default_rng(6)
    covered, widths, unpaired = 0, [], []
    for _ in range(400):
        hard = rng.random(24)  # the same tasks are hard for both
        a, b = (hard < 0.6).astype(float), ((hard + rng.normal(0, 0.1, 24)) < 0.5).astype(float)
        scores = [{WORLD: dict(enumerate(map(float, of)))} for of in (a, b)]
        found = gap(scores[0], scores[1], {WORLD: 1.0})
        covered += found.low <= 0.1 <= found.high
        widths.append(found.high - found.low)
        one, other = wilson(int(a.sum()), 24), wilson(int(b.sum()), 24)
        unpaired.append((one.high - one.low + other.high - other.low) / 2**0.5)
    assert covered / 400 >= 0.92
    assert np.mean(widths) < 0.8 * np.mean(unpaired)


def test_a_gap_needs_common_tasks() -> None:
    with pytest.raises(InputError, match="no task in common"):
        gap({WORLD: {0: 1.0}}, {OTHER: {0: 1.0}}, {WORLD: 1.0, OTHER: 1.0})


# ── as text ──────────────────────────────────────────────────────────────────

HOSTILE = "<script>alert(1)</script>|x"


class Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_every_form_tells_the_same_numbers() -> None:
    board = build([simple("m", "1110", progress=0.75), simple("n", "1000")])
    shown = text.markdown(board)
    assert "| 1 | direct, m | 75.0 (30 to 95) | 75.0 |" in shown
    rows = list(csv.DictReader(io.StringIO(text.table(board))))
    assert [(r["name"], r["environment"]) for r in rows] == [
        ("direct, m", "*"), ("direct, m", WORLD), ("direct, n", "*"), ("direct, n", WORLD),
    ]  # fmt: skip
    assert float(rows[1]["success"]) == 0.75
    received = json.loads(json.dumps(text.as_json(board)))
    assert received["front"] == ["direct, m"]
    assert received["contenders"][0]["success"]["mean"] == 0.75


def test_a_page_stands_alone_and_executes_nothing_that_a_name_says() -> None:
    page = text.page(build([simple(HOSTILE, "10"), simple("n", "11")]))
    found = Tags()
    found.feed(page)
    assert "script" not in found.open and not found.links
    assert "&lt;script&gt;" in page
    assert {"table", "svg", "h1"} <= set(found.open)


def test_a_name_cannot_break_a_markdown_table() -> None:
    lines = text.markdown(build([simple(HOSTILE, "10")])).splitlines()
    row = next(line for line in lines if "alert" in line)
    head = next(line for line in lines if line.startswith("|  | agent"))
    assert row.replace("\\|", "").count("|") == head.count("|")
    assert "\\<script\\>" in row


def test_small_numbers_of_tasks_are_warned_of() -> None:
    assert any("2 tasks" in note for note in text.remarks(build([simple("m", "10")])))
    assert not text.remarks(build([simple("m", "10" * 20)]))


def test_money_that_is_not_known_of_one_is_null_there_and_reported() -> None:
    board = build([simple("dear", "1010", money=0.25), simple("local", "1100")])
    shown = text.as_json(board)
    assert {one["model"]: one["means"]["money"] for one in shown["contenders"]} == {
        "dear": 0.25,
        "local": None,
    }
    assert any("the cost of direct, local in money is unknown" in note for note in shown["notes"])
    assert "| 0.2500 |" in text.markdown(board)
    assert "money" not in text.markdown(build([simple("a", "10")]))
