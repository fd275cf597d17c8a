"""The one line of a gesture."""

from __future__ import annotations

import pytest
from hypothesis import given

from palaestra.core.errors import InputError
from palaestra.core.gesture import USES, Gesture, Id, Mark, Point, Words
from palaestra.core.gestures.gesture_line import EXAMPLES, read_line, write_line
from tests.core.gestures.gestures_drawn import EVERY


@given(EVERY)
def test_each_gesture_is_one_line_that_reads_back_as_itself(gesture: Gesture) -> None:
    line = write_line(gesture)
    assert len(line.splitlines()) == 1
    assert read_line(line) == gesture


@pytest.mark.parametrize(
    ("line", "gesture"),
    [
        ("click [12]", Gesture("click", Id("12"))),
        ("click #3", Gesture("click", Mark(3))),
        ("click (320, 40)", Gesture("click", Point(320, 40))),
        ("click (0.5, 0.1)", Gesture("click", Point(0.5, 0.1, "shares"))),
        ("click (0.5, 1 px)", Gesture("click", Point(0.5, 1))),
        ("click 'the Buy button'", Gesture("click", Words("the Buy button"))),
        ("click \"the 'Buy' button\"", Gesture("click", Words("the 'Buy' button"))),
        ("click ['a b']", Gesture("click", Id("a b"))),
        ("click", Gesture("click")),
        ("double (1, 0)", Gesture("double", Point(1, 0))),
        ("right [x-1:2]", Gesture("right", Id("x-1:2"))),
        ("type [7] 'hello' enter", Gesture("type", Id("7"), text="hello", enter=True)),
        ("type 'hello'", Gesture("type", text="hello")),
        ("type 'Name' 'Ann\\n' clear", Gesture("type", Words("Name"), text="Ann\n", clear=True)),
        ("type 'Name' '' clear", Gesture("type", Words("Name"), clear=True)),
        ("type [7] clear", Gesture("type", Id("7"), clear=True)),
        ("press 'Control+a'", Gesture("press", text="Control+a")),
        ("press [7] 'Enter'", Gesture("press", Id("7"), text="Enter")),
        ("scroll down 300", Gesture("scroll", amount=(0, 300))),
        ("scroll down", Gesture("scroll", amount=(0, 1), unit="pages")),
        ("scroll [4] left 2 pages", Gesture("scroll", Id("4"), amount=(-2, 0), unit="pages")),
        ("scroll right 5 up 10", Gesture("scroll", amount=(5, -10))),
        ("drag [3] to #9", Gesture("drag", Id("3"), Mark(9))),
        ("select [5] 'Red'", Gesture("select", Id("5"), text="Red")),
        ("upload [4] 'cv.pdf'", Gesture("upload", Id("4"), text="cv.pdf")),
        ("go 'http://shop/'", Gesture("go", text="http://shop/")),
        ("  tab   2 ", Gesture("tab", text="2")),
        ("wait 2", Gesture("wait", amount=(2, 0))),
        ("answer ''", Gesture("answer")),
        ("give up", Gesture("give up")),
        ("give up 'sold out'", Gesture("give up", text="sold out")),
    ],
)
def test_lines_read_as_documented(line: str, gesture: Gesture) -> None:
    assert read_line(line) == gesture


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "begins with none of"),
        ("Click [12]", "begins with none of"),
        ("tap [12]", "write one like: click [12]"),
        ("click [12", "`[12` does not belong there; write it like: click [12]"),
        ("click 12", "`12` does not belong there"),
        ("click [12] [13]", "`[13]` does not belong there"),
        ("hover", "needs a target"),
        ("type [7]", "needs a text, `enter` or `clear`; write it like: type [7] 'hello' enter"),
        ("type [7] hello", "needs a text"),
        ("press 'Ctrl+a'", "'Ctrl' in 'Ctrl+a' is no key"),
        ("scroll 300", "needs an amount other than 0"),
        ("scroll around 3", "'around' is no direction; known: right, left, down, up"),
        ("scroll down 3 up 4", "twice along one axis"),
        ("scroll down 3 right 1 page", "pixels and by pages at once"),
        ("drag [3]", "needs `to` and a target to end at; write it like: drag [3] to [9]"),
        ("tab 01", "give its number from 0, 'new' or 'close'"),
        ("wait", None),
        ("wait -1", "not below 0"),
        ("give in", "begins with none of"),
        ("click (1e999, 3)", "give finite numbers"),
        ("say it's done", "needs a text; write it like: say 'Which size?'"),
    ],
)
def test_a_wrong_line_says_why_and_shows_a_right_one(line: str, why: str | None) -> None:
    if why is None:
        assert read_line(line) == Gesture("wait")
        return
    with pytest.raises(InputError) as refused:
        read_line(line)
    message = str(refused.value)
    assert why in message
    assert len(message.splitlines()) == 1


def test_every_kind_has_an_example_that_reads_as_that_kind() -> None:
    assert list(EXAMPLES) == list(USES)
    assert {kind: read_line(line).kind for kind, line in EXAMPLES.items()} == {k: k for k in USES}
