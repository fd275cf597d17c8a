"""Required calls in notations with tags: the grammar allows what the template writes, no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llguidance", reason="pip install 'palaestra[serving]'")

from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall, assistant
from palaestra.core.model import Finish
from palaestra.core.tool import Tool
from tests.models.local.test_forced_calls import asked, model_of

TAGGED = ("qwen_xml", "glm", "minimax")
PROPERTIES: dict[str, Any] = {
    "note": {"type": "string", "maxLength": 8, "description": "A text."},
    "count": {"type": "integer", "minimum": -5, "maximum": 20},
    "sure": {"type": "boolean"},
    "kind": {"enum": ["a", "b c", 7]},
    "perhaps": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "places": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 3},
}
CLOSINGS = {"qwen_xml": "</parameter>", "glm": "</arg_value>", "minimax": "</parameter>"}
texts = st.text("ab <>/\n\"'é\\{}", max_size=8)
VALUES = {
    "note": texts,
    "count": st.integers(-5, 20),
    "sure": st.booleans(),
    "kind": st.sampled_from(["a", "b c", 7]),
    "perhaps": st.one_of(st.integers(-99, 99), st.none()),
    "places": st.lists(st.text("ab ", max_size=3), max_size=3),
}


def tool_of(*required: str) -> Tool:
    schema = {"type": "object", "properties": PROPERTIES, "required": list(required)}
    return Tool("act", "Act.", schema)


def accepted(name: str, tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return whether the grammar allows the tokens that the template writes for a call."""
    model = model_of(name)
    tokens = model.renderer.reply(assistant("", tool_calls=[ToolCall("act", arguments, "x")]))
    grammar = model._call_grammars.of([tool], "required", "x")
    mask = model._grammars.of(grammar)
    return all(token in mask.allowed(tokens[:n]) for n, token in enumerate(tokens[:-1])) and (
        tokens[-1] in mask.allowed(tokens[:-1])
    )


@pytest.mark.parametrize("name", TAGGED)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_call_is_allowed_if_it_fits_the_schema(name: str, data: st.DataObject) -> None:
    """Any subset of the arguments, in the schema's order; then with one more or less."""
    keys = [key for key in PROPERTIES if data.draw(st.booleans(), key)]
    arguments = {key: data.draw(VALUES[key], key) for key in keys}
    required = [key for key in keys if data.draw(st.booleans(), f"{key} required")]
    assert accepted(name, tool_of(*required), arguments)
    absent = [key for key in PROPERTIES if key not in keys]
    if absent:
        assert not accepted(name, tool_of(*required, absent[0]), arguments)
    if len(keys) > 1:
        assert not accepted(name, tool_of(), dict(reversed(arguments.items())))


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize(
    "arguments",
    [
        {"note": "nine long"},
        {"count": 21},
        {"count": "many"},
        {"sure": "perhaps"},
        {"kind": "c"},
        {"perhaps": 1.5},
        {"places": ["abcd"]},
        {"other": 1},
    ],
)
def test_what_does_not_fit_is_not_allowed(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(arguments, tool_of().parameters | {"additionalProperties": False})
    assert not accepted(name, tool_of(), arguments)


@pytest.mark.parametrize("name", TAGGED)
def test_a_text_cannot_hold_its_closing_tag(name: str) -> None:
    tool = Tool("act", "Act.", {"type": "object", "properties": {"note": {"type": "string"}}})
    closing = CLOSINGS[name]
    assert accepted(name, tool, {"note": f"a < b, {closing[:-1]} c"})
    for text in (f"a {closing} b", closing, f"a{closing}"):
        assert not accepted(name, tool, {"note": text})


@pytest.mark.parametrize("name", TAGGED)
def test_sampled_calls_fit_the_schema_and_are_read_with_their_types(name: str) -> None:
    tool = tool_of("note", "count", "sure", "perhaps")
    model = model_of(name)
    for reply in asked(model, *range(3), tools=[tool], max_tokens=400):
        assert reply.finish is Finish.STOP
        (call,) = reply.tool_calls
        jsonschema.validate(dict(call.arguments), tool.parameters)
        # a template that writes it again gives the very text
        rendered = model.renderer.text(model.renderer.reply(assistant("", tool_calls=[call])))
        assert model.renderer.text(reply.tokens) == rendered


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#/x"}, r"its schema has '\$ref'"),
        ({"properties": {"a": {"type": "string", "pattern": "b"}}}, "the text 'a' has 'pattern'"),
        ({"properties": {"a": {"allOf": []}}}, "the text 'a' has 'allOf'"),
        ({"properties": {}, "required": ["a"]}, "requires 'a', which its schema does not describe"),
        (
            {"properties": {"a": {"enum": ["</parameter>"]}}},
            "'</parameter>', a value of 'a', would be read as another one",
        ),
    ],
)
def test_schemas_that_tags_cannot_hold_are_refused_by_name(
    schema: dict[str, Any], reason: str
) -> None:
    tool = Tool("act", "Act.", {"type": "object", **schema})
    with pytest.raises(InputError, match=rf"{reason}; use tool_choice='auto'"):
        asked(model_of("qwen_xml"), 0, tools=[tool])
