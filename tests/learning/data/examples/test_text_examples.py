"""Texts as rows, and which paragraphs are held out."""

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.learning.data.examples.text_examples import is_held_out, paragraphs, text_rows
from tests.learning.data.examples.stories import RENDERER

WORDS = st.lists(st.sampled_from(["a0", "a1", "task", "who"]), min_size=1, max_size=30)


@given(WORDS, st.integers(2, 9))
def test_rows_of_a_text_train_each_of_its_tokens_but_the_first_once(words, limit):
    text = " ".join(words)
    tokens = RENDERER.reply(text)
    rows = list(text_rows(text, RENDERER, limit, Key("files", 0)))
    assert all(len(row.tokens) <= limit for row in rows)
    trained = [t for row in rows for t, on in zip(row.tokens, row.mask, strict=True) if on]
    assert trained == tokens[1:]


def test_an_empty_text_gives_no_rows():
    assert list(text_rows(" \n", RENDERER, 8, Key("files", 0))) == []


def test_paragraphs_are_what_blank_lines_separate():
    assert paragraphs("one\n  two\n \n\nthree\n\n----\n\n") == ["one\n  two", "three"]


@given(st.text(alphabet="ab c", min_size=1))
def test_line_breaks_do_not_change_what_is_held_out(paragraph):
    broken = paragraph.replace(" ", "\n  ")
    assert is_held_out(broken) == is_held_out(paragraph)


def test_about_a_tenth_is_held_out():
    held = sum(is_held_out(f"paragraph {n}") for n in range(2000))
    assert 150 < held < 250
