"""The arguments of tool calls as JSON text, as protocols carry them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.message import ToolCall
from palaestra.core.tool import UNPARSED, arguments_of, arguments_text

words = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(words.filter(bool), values, max_size=3))
def test_arguments_survive_their_text(arguments: dict[str, object]) -> None:
    assert arguments_of(arguments_text(ToolCall("act", arguments))) == arguments


@given(words)
def test_a_text_that_is_no_object_is_sent_back_as_it_came(text: str) -> None:
    arguments = arguments_of(text)
    if list(arguments) == [UNPARSED]:
        assert arguments_text(ToolCall("act", arguments)) == text


@pytest.mark.parametrize(
    "text",
    ['{"go": ', '["up"]', '"up"', '{"n": NaN}', '{"n": 1e999}', '{"s": "\\ud800"}', "[" * 9000],
    ids=lambda text: text[:12],
)
def test_what_cannot_be_recorded_as_json_is_kept_as_text(text: str) -> None:
    arguments = arguments_of(text)
    assert dict(arguments) == {UNPARSED: text}
    json.dumps(dict(arguments), allow_nan=False, ensure_ascii=False).encode()


def test_no_text_means_no_arguments() -> None:
    assert arguments_of("") == {}
