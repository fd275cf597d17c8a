"""What a target stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.element import Box, Element
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Mark, Point, Target, Words
from palaestra.core.gestures.dialects import dialect
from palaestra.core.gestures.locating import element_of, point_of, with_points

SIZE = (200, 100)
SHOP = [
    Element("1", "RootWebArea", "Shop", box=Box(0, 0, 200, 100)),
    Element("3", "heading", "Buy shoes", box=Box(0, 0, 100, 10), parent="1"),
    Element("7", "textbox", "Size", "42", box=Box(0, 20, 80, 20), parent="1"),
    Element("8", "button", "Buy", box=Box(100, 20, 40, 20), parent="1"),
    Element("9", "StaticText", "Buy", box=Box(110, 25, 20, 10), parent="8"),
    Element("10", "link", "Buy", box=Box(150, 20, 40, 20), parent="1"),
    Element("11", "button", "Sell everything now", box=Box(0, 60, 60, 20), parent="1"),
    Element("12", "link", "Terms of sale", parent="1"),
    Element("13", "checkbox", "I agree", box=Box(80, 60, 10, 10), parent="1"),
]


@pytest.mark.parametrize(
    ("target", "id"),
    [
        (Id("7"), "7"),
        (Mark(1), "7"),
        (Mark(5), "13"),
        (Point(115, 30), "9"),
        (Point(105, 21), "8"),
        (Point(199, 99), "1"),
        (Words("size"), "7"),
        (Words("the Buy button"), "8"),
        (Words("Link: Buy"), "10"),
        (Words("the size field"), "7"),
        (Words("Buy shoes"), "3"),
        (Words("sell it"), "11"),
        (Words("the terms link"), "12"),
        (Words("the checkbox"), "13"),
        (Words("the first button"), "8"),
        (Words("second button"), "11"),
        (Words("first Buy"), "8"),
        (Words("the second Buy"), "10"),
    ],
)
def test_a_target_stands_for_one_element(target: Target, id: str) -> None:
    assert element_of(target, SHOP).id == id


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (Id("99"), "There is no element [99]: it has gone or never was"),
        (Mark(6), "There is no mark #6: they go from #1 to #5."),
        (Words("Buy"), "'Buy' fits 2 elements: [8] button 'Buy', [10] link 'Buy'; name one by"),
        (Words("the third button"), "No element fits 'the third button'"),
        (Words("the button"), "fits 2 elements: [8] button 'Buy', [11] button 'Sell"),
        (Words("the Pay button"), "No element fits 'the Pay button': there are [7] textbox"),
        (Words(""), "No element fits ''"),
        (Point(300, 4), "There is no element at (300, 4)."),
        (Point(0.5, 0.5, "shares"), "turn it into pixels first"),
    ],
)
def test_what_stands_for_no_element_says_why(target: Target, why: str) -> None:
    with pytest.raises(InputError) as refused:
        element_of(target, SHOP)
    assert why in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_marks_of_an_empty_page() -> None:
    with pytest.raises(InputError, match="There is no mark #1: there are none"):
        element_of(Mark(1), SHOP[:1])


def test_targets_are_points_of_the_picture() -> None:
    assert point_of(Id("8"), SHOP, SIZE) == (120, 30)
    broken = Element("14", "link", "Over two lines", box=Box(0, 80, 200, 20), inside=(170, 84))
    assert point_of(Id("14"), [*SHOP, broken], SIZE) == (170, 84)
    assert point_of(Point(3, 4), SHOP, SIZE) == (3, 4)
    assert point_of(Point(0.25, 0.5, "shares"), SHOP, SIZE) == (50, 50)
    with pytest.raises(InputError, match=r"\[12\] link 'Terms of sale' is not in the picture"):
        point_of(Id("12"), SHOP, SIZE)
    with pytest.raises(InputError, match="outside of the picture, which is 200 pixels wide"):
        point_of(Point(200, 4), SHOP, SIZE)


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_always_lie_in_the_picture(x: float, y: float) -> None:
    at = Point(*point_of(Point(x, y, "shares"), SHOP, SIZE))
    assert point_of(at, SHOP, SIZE) == (at.x, at.y)
    assert element_of(at, SHOP)


def test_a_gesture_at_an_element_is_said_in_dialects_of_points() -> None:
    drag = Gesture("drag", Id("8"), Words("size"))
    code = dialect("pyautogui").write(with_points(drag, SHOP, SIZE))
    assert code == "pyautogui.moveTo(120, 30)\npyautogui.dragTo(40, 30)"
    tars = dialect("ui-tars").write(with_points(drag, SHOP, SIZE, "shares"))
    assert tars == "drag(start_box='(600,300)', end_box='(200,300)')"
