"""Tool calls as text: formatting and parsing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.message import ToolCall, assistant, tool_result
from palaestra.core.tool import Tool
from palaestra.gateway import hermes_tags
from palaestra.models.renderers.tool_text import as_words, described, written

words = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(ToolCall, words, st.dictionaries(words, values, max_size=3))


@settings(max_examples=50)
@given(st.lists(calls, max_size=3))
def test_formatted_calls_are_parsed_back(given: list[ToolCall]) -> None:
    text = "I see.\n" + "\n".join(map(written, given))
    assert hermes_tags.parsed(text) == ("I see." if given else text, given)


@settings(max_examples=50)
@given(words)
def test_text_without_calls_stays_as_it_is(text: str) -> None:
    assert hermes_tags.parsed(text) == (text, [])


def test_an_invalid_call_stays_in_the_text() -> None:
    for text in (
        "<tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "act"',
        '<tool_call>{"name": "act", "arguments": []}</tool_call>',
        '<tool_call>{"name": "act", "arguments": {}} and more</tool_call>',
        "<tool_call>" + "[" * 5000,
    ):
        assert hermes_tags.parsed(text) == (text, [])


def test_the_last_closing_tag_may_be_missing() -> None:
    _, found = hermes_tags.parsed('<tool_call>{"name": "act", "arguments": {"a": 1}}')
    assert found == [ToolCall("act", {"a": 1})]


def test_listed_tools_are_parsed_back() -> None:
    tools = [Tool("act", "Does.", {"type": "object", "properties": {"é": {"type": "string"}}})]
    assert hermes_tags.offered("Be kind.\n\n" + hermes_tags.instructions(tools)) == tools
    assert hermes_tags.offered("Use <tools>\nwisely\n</tools>.") == []


def test_programs_and_local_agents_give_a_model_the_same_text_for_tools_calls_and_results() -> None:
    tools = [Tool("act", "Does.", {"type": "object", "properties": {}})]
    assert hermes_tags.instructions(tools) == described(tools)
    assert hermes_tags.instructions(tools, "required").startswith(described(tools))
    call = ToolCall("act", {"é": 1})
    for message in (assistant("I see.", tool_calls=[call, call]), tool_result("It opens.")):
        as_text = hermes_tags.as_text(message)
        assert as_text is not None and as_text.text == as_words([message])[0].text
