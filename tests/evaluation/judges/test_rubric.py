"""Rubrics: what is in the form counts, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.errors import InputError, UnknownName
from palaestra.evaluation.judges.rubric import (
    SOLVED,
    Criterion,
    Rubric,
    choice_in,
    read_rubric,
    reason_in,
)
from palaestra.evaluation.judges.verdict import Choice

TWO = Rubric("Well?", (Criterion("one"), Criterion("two", 3.0)))


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("1: yes\n2: yes", 1.0),
        ("1: no\n2: no\nReason: nothing was done", 0.0),
        ("Let me think.\n1: yes\n2: NO.", 0.25),
        ("2) yes\n1. no", 0.75),
        ("1: yes\n1: yes\n2: yes", 1.0),
    ],
)
def test_the_value_is_the_weighted_share_of_yes(reply: str, value: float) -> None:
    assert TWO.value(reply) == value


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "does not answer criterion 1"),
        ("I cannot judge this.", "does not answer criterion 1"),
        ("yes", "does not answer criterion 1"),
        ("1: yes", "does not answer criterion 2"),
        ("1: yes\n2: maybe", "does not answer criterion 2"),
        ("1: yes or no\n2: yes", "does not answer criterion 1"),
        ("1: yes\n1: no\n2: yes", "both yes and no"),
        ("1: yes\n2: yes\n3: yes", "which does not exist"),
    ],
)
def test_what_is_not_in_the_form_is_no_value(reply: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TWO.value(reply)


def test_the_form_itself_is_no_answer() -> None:
    """A judge that repeats the question gives no verdict."""
    with pytest.raises(ValueError, match="does not answer"):
        SOLVED.value(SOLVED.form)


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Better: A", Choice.FIRST),
        ("Hm.\nbetter: b.", Choice.SECOND),
        ("Better: equal", Choice.EQUAL),
        ("A is better", Choice.NONE),
        ("Better: A\nBetter: B", Choice.NONE),
        ("Better: A, or Better: B, or Better: equal", Choice.NONE),
    ],
)
def test_a_choice_is_read_just_as_strictly(reply: str, choice: Choice) -> None:
    assert choice_in(reply) is choice


def test_the_reason_is_what_the_judge_gives_as_such() -> None:
    assert reason_in("1: yes\nReason: it paid.\n") == "it paid."
    assert reason_in("1: yes") == ""


def test_a_rubric_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "paid.toml"
    file.write_text(
        '[rubric]\nquestion = "Paid?"\ncriteria = ["It was paid.", {text = "Once.", weight = 2}]'
    )
    assert read_rubric(file) == Rubric(
        "Paid?", (Criterion("It was paid."), Criterion("Once.", 2.0))
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[rubric", "cannot be read"),
        ("[other]", r"no table \[rubric\]"),
        ("[rubric]\ncriteria = []", "no criteria"),
        ("[rubric]\ncriteria = [3]", "not a criterion"),
        ('[rubric]\ncriteria = [{text = "x", weight = -1}]', "weight above 0"),
    ],
)
def test_a_file_that_is_no_rubric_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(InputError, match=why):
        read_rubric(tmp_path / "r.toml")


def test_an_unknown_key_of_a_rubric_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[rubric]\ncriterias = ["x"]')
    with pytest.raises(UnknownName, match="criteria"):
        read_rubric(tmp_path / "r.toml")
