"""Gestures as calls of tools."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given

from palaestra.core.environment import Action
from palaestra.core.errors import InputError
from palaestra.core.gesture import USES, Gesture, Id, Mark
from palaestra.core.gestures.gesture_tools import TOOLS, call_of, gesture_in, gesture_of
from palaestra.core.message import ToolCall
from palaestra.core.tool import checked
from tests.core.gestures.gestures_drawn import EVERY


@given(EVERY)
def test_each_gesture_is_a_call_that_fits_its_schema_and_reads_back(gesture: Gesture) -> None:
    call = call_of(gesture)
    assert gesture_of(checked(call, tuple(TOOLS.values()))) == gesture


def test_every_kind_has_a_tool_whose_schema_is_json() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert list(TOOLS) == list(USES)
    for kind, tool in TOOLS.items():
        jsonschema.Draft202012Validator.check_schema(json.loads(json.dumps(tool.parameters)))
        assert tool.name == kind.replace(" ", "_")


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("click('a12')", "BrowserGym; write it here as: click [a12]"),
        ("goto [http://shop/]", "WebArena; write it here as: go 'http://shop/'"),
        ('{"action": "key", "text": "Return"}', "computer tool; write it here as: press 'Enter'"),
        ("pyautogui.click(3, 4); pyautogui.write('a')", "as: click (3, 4); type 'a'"),
    ],
)
def test_an_action_of_another_system_is_answered_with_the_line_to_write(
    action: str, line: str
) -> None:
    with pytest.raises(InputError, match=re.escape(line)):
        gesture_in(Action(action))


def test_an_action_is_a_line_or_a_call() -> None:
    assert gesture_in(Action("click #3")) == Gesture("click", Mark(3))
    call = ToolCall("click", {"target": "#3"})
    assert gesture_in(Action("", call)) == Gesture("click", Mark(3))
    with pytest.raises(InputError, match="begins with none of click, double"):
        gesture_in(Action("jump"))


def test_a_bare_word_is_an_id() -> None:
    assert gesture_of(ToolCall("click", {"target": "a12"})) == Gesture("click", Id("a12"))
    assert gesture_of(ToolCall("click", {"target": " #3 "})) == Gesture("click", Mark(3))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (ToolCall("tap", {}), "There is no tool 'tap'"),
        (ToolCall("hover", {}), "hover needs the argument 'target'"),
        (ToolCall("press", {"keys": "Ctrl+a"}), "'Ctrl' in 'Ctrl+a' is no key"),
        (ToolCall("scroll", {}), "needs an amount other than 0"),
        (ToolCall("type", {"text": 3}), "'text' must be string"),
        (ToolCall("wait", {"seconds": -1}), "not below 0"),
    ],
)
def test_a_wrong_call_says_why(call: ToolCall, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(why)):
        gesture_of(call)
