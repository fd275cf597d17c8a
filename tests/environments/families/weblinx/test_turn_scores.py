"""The parts of a turn's score, computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Box
from palaestra.core.gestures.gesture_line import read_line
from palaestra.environments.families.weblinx.turn_scores import (
    by_box,
    chrf,
    intent_of,
    overlap,
    turn_score,
    urlf,
)

HERE = Box(0, 0, 10, 10)
TEXTS = st.text("abc ", max_size=12)


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [
        (HERE, HERE, 1.0),
        (HERE, Box(5, 0, 10, 10), 50 / 150),
        (HERE, Box(2, 2, 5, 4), 20 / 100),
        (HERE, Box(10, 0, 10, 10), 0.0),
        (HERE, None, 0.0),
        (Box(1, 1, 0, 0), Box(1, 1, 0, 0), 0.0),
    ],
)
def test_overlap_is_intersection_over_union(first: Box, second: Box | None, share: float) -> None:
    assert overlap(first, second) == pytest.approx(share)


def test_chrf_averages_precision_and_recall_over_n_grams() -> None:
    # "abcd" against "abce": 3 of 4 letters, 2 of 3 pairs, 1 of 2 triples, 0 of 1 quadruple.
    mean = (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4
    assert chrf("abcd", "ab ce") == pytest.approx(mean)  # precision and recall are equal
    # "ab" against "abab": both letters, the pair; recall 2 of 4, 1 of 3.
    precision, recall = (1 + 1) / 2, (2 / 4 + 1 / 3) / 2
    assert chrf("ab", "abab") == pytest.approx(5 * precision * recall / (4 * precision + recall))
    assert chrf("", "abc") == chrf("abc", "") == chrf("xyz", "abc") == 0.0


@given(TEXTS, TEXTS)
def test_chrf_is_that_of_sacrebleu(text: str, reference: str) -> None:
    metric = pytest.importorskip("sacrebleu", reason="'sacrebleu' is not installed")
    expected = metric.sentence_chrf(text, [reference]).score / 100
    assert chrf(text, reference) == pytest.approx(expected)


@given(TEXTS.filter(str.strip))
def test_the_same_text_scores_one(text: str) -> None:
    assert chrf(text, text) == 1.0


@pytest.mark.parametrize(
    ("url", "score"),
    [
        ("http://www.shop.com/shoes/red", 1.0),
        ("https://shop.com/shoes/red?page=2", 1.0),
        ("http://shop.com/shoes", 2 * 2 / (2 + 3)),
        ("http://shop.com", 2 * 1 / (1 + 3)),
        ("http://mall.com/hats", 0.0),
        ("http://[", 0.0),
        ("", 0.0),
    ],
)
def test_urlf_is_the_f1_of_the_parts_of_an_address(url: str, score: float) -> None:
    assert urlf(url, "http://shop.com/shoes/red/") == pytest.approx(score)


@pytest.mark.parametrize(
    ("line", "intent"),
    [
        ("click [1]", "click"),
        ("type [1] 'a' enter", "textinput"),
        ("press [1] 'Enter'", "submit"),
        ("press 'Tab'", "press"),
        ("select [1] 'a'", "change"),
        ("go 'http://a.com'", "load"),
        ("answer 'a'", "say"),
        ("say 'a'", "say"),
        ("scroll down 10", "scroll"),
        ("tab new", "tabcreate"),
        ("tab 1", "tabswitch"),
        ("back", "back"),
    ],
)
def test_a_gesture_has_an_intent(line: str, intent: str) -> None:
    assert intent_of(read_line(line)) == intent


@pytest.mark.parametrize(
    ("predicted", "recorded", "score"),
    [
        ("click [1]", "click [2]", 0.2),
        ("hover [1]", "click [2]", 0.0),
        ("press [1] 'Enter'", "press [2] 'Enter'", 0.2),
        ("type [1] 'abcd'", "type [2] 'abce'", 0.2 * (3 / 4 + 2 / 3 + 1 / 2) / 4),
        ("select [1] 'abcd'", "select [2] 'abcd'", 0.2),
        ("say 'abcd'", "say 'abce'", (3 / 4 + 2 / 3 + 1 / 2) / 4),
        ("go 'http://a.com/b'", "go 'http://a.com'", 2 / 3),
        ("scroll down 10", "scroll up 900", 1.0),
    ],
)
def test_the_overall_score_is_the_product_of_what_applies(
    predicted: str, recorded: str, score: float
) -> None:
    first, second = read_line(predicted), read_line(recorded)
    judged = turn_score(first, second, HERE, Box(2, 2, 5, 4))
    assert judged.overall == pytest.approx(score)


def test_a_point_stands_for_the_smallest_box_around_it() -> None:
    boxes = {"page": Box(0, 0, 100, 100), "button": HERE, "empty": Box(1, 1, 0, 0)}
    assert by_box(boxes, 1, 1) == HERE
    assert by_box(boxes, 50, 50) == boxes["page"]
    assert by_box(boxes, 500, 50) is None
