"""Calls of tools as text, there and back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.message import ToolCall
from palaestra.core.tool import Tool
from palaestra.rollout.gateway import hermes

words = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(ToolCall, words, st.dictionaries(words, values, max_size=3))


@settings(max_examples=50)
@given(st.lists(calls, max_size=3))
def test_calls_that_are_written_are_read_again(given: list[ToolCall]) -> None:
    text = "I see.\n" + "\n".join(map(hermes.written, given))
    assert hermes.parsed(text) == ("I see." if given else text, given)


@settings(max_examples=50)
@given(words)
def test_text_without_calls_stays_as_it_is(text: str) -> None:
    assert hermes.parsed(text) == (text, [])


def test_what_is_no_sound_call_stays_among_the_words() -> None:
    for text in (
        "<tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "act"',
        '<tool_call>{"name": "act", "arguments": []}</tool_call>',
        '<tool_call>{"name": "act", "arguments": {}} and more</tool_call>',
        "<tool_call>" + "[" * 5000,
    ):
        assert hermes.parsed(text) == (text, [])


def test_the_last_closing_tag_may_be_missing() -> None:
    _, found = hermes.parsed('<tool_call>{"name": "act", "arguments": {"a": 1}}')
    assert found == [ToolCall("act", {"a": 1})]


def test_tools_that_are_told_are_heard() -> None:
    tools = [Tool("act", "Does.", {"type": "object", "properties": {"é": {"type": "string"}}})]
    assert hermes.heard("Be kind.\n\n" + hermes.told(tools)) == tools
    assert hermes.heard("Use <tools>\nwisely\n</tools>.") == []
