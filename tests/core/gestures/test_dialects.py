"""Dialects: what each can say reads back as itself, what it cannot is refused in one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.gesture import Gesture, Id, Mark, Point, Target
from palaestra.core.gestures.dialect_reading import NOTCH, PAGES
from palaestra.core.gestures.dialects import DIALECTS, Dialect, dialect, read_single
from palaestra.core.gestures.gesture_line import read_line
from tests.core.gestures.gestures_drawn import CHORDS, EVERY

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
LINES = st.from_regex(r"[ -~]{1,12}", fullmatch=True)
NO_END = TEXTS.filter(lambda text: not text.endswith("\n"))
IDS = st.builds(Id, TEXTS)
NUMBERED = st.builds(Id, st.integers(0, 9999).map(str))
MARKS = st.builds(Mark, st.integers(0, 500))
PIXELS = st.builds(Point, st.integers(0, 4000).map(float), st.integers(0, 4000).map(float))
FRACTIONS = st.builds(Point, st.floats(0, 4000), st.floats(0, 4000))
THOUSANDTHS = st.integers(0, 1000).map(lambda one: one / 1000)
SHARES = st.builds(Point, THOUSANDTHS, THOUSANDTHS, st.just("shares"))
FREE_SHARES = st.builds(Point, st.floats(0, 1), st.floats(0, 1), st.just("shares"))
NONE = st.none()
Drawn = st.SearchStrategy[Gesture]


def on(kinds: str, targets: st.SearchStrategy[Target | None]) -> Drawn:
    return st.builds(Gesture, st.sampled_from(kinds.split()), targets)


def worded(kind: str, texts: st.SearchStrategy[str] = TEXTS) -> Drawn:
    return texts.map(lambda text: Gesture(kind, text=text))  # type: ignore[arg-type]


def plain_types() -> Drawn:
    return st.one_of(
        NO_END.map(lambda text: Gesture("type", text=text)),
        st.text(st.characters(codec="utf-8"), max_size=9).map(
            lambda text: Gesture("type", text=text, enter=True)
        ),
    )


def drags(targets: st.SearchStrategy[Target], starts: st.SearchStrategy[Target | None]) -> Drawn:
    return st.builds(lambda start, end: Gesture("drag", start, end), starts, targets)


def pages(targets: st.SearchStrategy[Target | None], directions: str) -> Drawn:
    return st.builds(
        lambda target, way: Gesture("scroll", target, amount=PAGES[way], unit="pages"),
        targets,
        st.sampled_from(directions.split()),
    )


def wheel(targets: st.SearchStrategy[Target | None], unit: float) -> Drawn:
    far = st.integers(-50, 50).filter(bool).map(lambda one: one * unit)
    amounts = st.tuples(far, st.just(0.0)) | st.tuples(st.just(0.0), far)
    return st.builds(lambda at, amount: Gesture("scroll", at, amount=amount), targets, amounts)


def just(*lines: str) -> Drawn:
    return st.sampled_from([read_line(line) for line in lines])


def said(spoken: Dialect, gesture: Gesture) -> tuple[str, str]:
    """A gesture's action and why there is none; one of both is empty."""
    try:
        return spoken.write(gesture), ""
    except InputError as refused:
        return "", str(refused)


def refusal_of(text: str, spoken: Dialect) -> str:
    """Why a text is no action; empty if it is one."""
    try:
        read_single(text, spoken)
    except InputError as refused:
        return str(refused)
    return ""


PRESSES = CHORDS.map(lambda keys: Gesture("press", text=keys))
TABS = st.integers(0, 30).map(lambda number: Gesture("tab", text=str(number)))
WAITS = st.integers(0, 9000).map(lambda one: Gesture("wait", amount=(one / 1000, 0.0)))
SAYABLE: dict[str, Drawn] = {
    "browsergym": st.one_of(
        on("click right double hover", IDS | FRACTIONS),
        st.builds(lambda at, text: Gesture("type", at, text=text, clear=True), IDS, TEXTS),
        IDS.map(lambda at: Gesture("type", at, clear=True)),
        plain_types(),
        PRESSES,
        st.builds(lambda at, keys: Gesture("press", at, text=keys), IDS, CHORDS),
        st.builds(lambda at, text: Gesture("select", at, text=text), IDS, TEXTS),
        st.builds(lambda at, text: Gesture("upload", at, text=text), IDS, TEXTS),
        drags(IDS, IDS),
        drags(FRACTIONS, FRACTIONS),
        wheel(NONE, 12.5),
        worded("go"),
        worded("answer"),
        worded("give up"),
        TABS,
        WAITS,
        just("back", "forward", "tab new", "tab close", "answer", "give up"),
    ),
    "webarena": st.one_of(
        on("click hover", NUMBERED),
        st.builds(
            lambda at, text, enter: Gesture("type", at, text=text, enter=enter),
            NUMBERED,
            LINES,
            st.booleans(),
        ),
        PRESSES,
        pages(NONE, "up down"),
        worded("go", LINES),
        worded("answer", LINES),
        TABS,
        just("back", "forward", "tab new", "tab close", "answer", "give up"),
    ),
    "pyautogui": st.one_of(
        on("click right double", PIXELS | NONE),
        on("hover", PIXELS),
        drags(PIXELS, PIXELS | NONE),
        plain_types(),
        PRESSES,
        wheel(PIXELS | NONE, NOTCH),
        WAITS,
        just("answer", "give up"),
    ),
    "openai": st.one_of(
        on("click right double hover", PIXELS),
        drags(PIXELS, PIXELS),
        plain_types(),
        PRESSES,
        wheel(PIXELS, 1.0),
        just("back", "forward", "wait 0", "wait 2"),
    ),
    "anthropic": st.one_of(
        on("click right double", PIXELS | NONE),
        on("hover", PIXELS),
        drags(PIXELS, PIXELS | NONE),
        plain_types(),
        PRESSES,
        wheel(PIXELS | NONE, NOTCH),
        WAITS,
    ),
    "ui-tars": st.one_of(
        on("click right double", SHARES),
        drags(SHARES, SHARES),
        pages(SHARES, "up down left right"),
        plain_types(),
        PRESSES,
        worded("open"),
        worded("answer"),
        just("back", "home", "answer", "give up", "wait 5"),
    ),
    "androidworld": st.one_of(
        on("click right double", MARKS | PIXELS),
        st.builds(
            lambda at, text, clear: Gesture("type", at, text=text, clear=clear, enter=True),
            MARKS | PIXELS,
            TEXTS,
            st.booleans(),
        ),
        pages(MARKS | NONE, "up down left right"),
        worded("open"),
        worded("say"),
        just("back", "home", "answer", "give up", "wait 1", "press 'Enter'"),
    ),
    "aitw": st.one_of(
        on("click", FREE_SHARES),
        drags(
            st.just(Point(0.9, 0.9, "shares")),
            st.builds(Point, st.floats(0, 0.8), st.floats(0, 1), st.just("shares")),
        ),
        worded("type"),
        just("back", "home", "press 'Enter'", "answer", "give up"),
    ),
}
"""What each dialect can say, on the grid of its points."""


@pytest.mark.parametrize("name", DIALECTS)
def test_what_a_dialect_can_say_reads_back_as_itself(name: str) -> None:
    spoken = dialect(name)

    @given(SAYABLE[name])
    def reads_back(gesture: Gesture) -> None:
        assert read_single(spoken.write(gesture), spoken) == gesture

    reads_back()


@pytest.mark.parametrize("name", DIALECTS)
def test_any_gesture_is_said_up_to_rounding_or_refused_in_one_sentence(name: str) -> None:
    spoken = dialect(name)

    @given(EVERY)
    def said_or_refused(gesture: Gesture) -> None:
        written, refusal = said(spoken, gesture)
        if refusal:
            assert refusal.startswith(f"{spoken.name} cannot say `{gesture.kind}")
            assert len(refusal.splitlines()) == 1
            return
        read = read_single(written, spoken)
        assert (read.kind, read.text, read.enter) == (gesture.kind, gesture.text, gesture.enter)
        assert spoken.write(read) == written

    said_or_refused()


@pytest.mark.parametrize("name", DIALECTS)
def test_each_form_of_a_dialect_is_read(name: str) -> None:
    spoken = dialect(name)
    for form in spoken.forms:
        assert len(spoken.read(form)) == 1


@pytest.mark.parametrize("name", DIALECTS)
@given(
    st.text(max_size=30) | st.sampled_from([form for d in DIALECTS.values() for form in d.forms])
)
def test_any_text_is_read_or_refused_in_one_sentence(name: str, text: str) -> None:
    assert len(refusal_of(text, dialect(name)).splitlines()) <= 1


READ = [
    ("browsergym", 'click("a12")', "click [a12]"),
    ("browsergym", "click(bid='a12', button='right')", "right [a12]"),
    ("browsergym", "fill('7', 'Ann\\'s')", 'type [7] "Ann\'s" clear'),
    ("browsergym", "scroll(0, -200.5)", "scroll up 200.5"),
    ("browsergym", "select_option('48', ['blue'])", "select [48] 'blue'"),
    ("browsergym", "noop()", "wait 1"),
    ("browsergym", "press('88', 'ctrl+a')", "press [88] 'Control+a'"),
    ("webarena", "type [7] [red shoes]", "type [7] 'red shoes' enter"),
    ("webarena", "type [7] [a] [b] [0]", "type [7] 'a] [b'"),
    ("webarena", "press [Ctrl+v]", "press 'Control+v'"),
    ("webarena", "stop", "answer ''"),
    ("webarena", "stop [N/A]", "give up"),
    ("webarena", "scroll [down]", "scroll down 1 page"),
    ("pyautogui", "import pyautogui\npyautogui.click(x=320, y=40)", "click (320, 40)"),
    ("pyautogui", "pyautogui.click(5, 6, clicks=2)", "double (5, 6)"),
    ("pyautogui", "pyautogui.click(5, 6, button='right')", "right (5, 6)"),
    ("pyautogui", "pyautogui.moveTo(1, 2)\npyautogui.dragTo(3, 4)", "drag (1, 2) to (3, 4)"),
    ("pyautogui", "pyautogui.scroll(-3)", "scroll down 300"),
    ("pyautogui", "pyautogui.typewrite('hi\\n', interval=0.1)", "type 'hi' enter"),
    ("pyautogui", "pyautogui.hotkey('ctrl', 'shift', 't')", "press 'Control+Shift+t'"),
    ("pyautogui", "pyautogui.press('pgdn')", "press 'PageDown'"),
    ("openai", '{"type": "keypress", "keys": ["CTRL", "A"]}', "press 'Control+A'"),
    ("openai", '{"type": "click", "x": 3, "y": 4, "button": "back"}', "back"),
    (
        "anthropic",
        '{"action": "scroll", "coordinate": [3, 4], "scroll_direction": "up", "scroll_amount": 2}',
        "scroll (3, 4) up 200",
    ),
    ("anthropic", '{"action": "key", "text": "ctrl+Page_Down"}', "press 'Control+PageDown'"),
    ("anthropic", '{"action": "left_click_drag", "coordinate": [3, 4]}', "drag to (3, 4)"),
    (
        "ui-tars",
        "Thought: the button.\nAction: click(start_box='<|box_start|>(250,500)<|box_end|>')",
        "click (0.25, 0.5)",
    ),
    ("ui-tars", "click(point='<point>250 500</point>')", "click (0.25, 0.5)"),
    ("ui-tars", "left_double(start_box='[100, 200, 300, 400]')", "double (0.2, 0.3)"),
    ("ui-tars", "type(content='shoes\\n')", "type 'shoes' enter"),
    ("ui-tars", "hotkey(key='ctrl arrowdown')", "press 'Control+ArrowDown'"),
    ("androidworld", '{"action_type": "click", "index": 3}', "click #3"),
    ("androidworld", '{"action_type": "answer", "text": "42"}', "say '42'"),
    ("androidworld", '{"action_type": "scroll", "direction": "left"}', "scroll left 1 page"),
    (
        "aitw",
        '{"action_type": "DUAL_POINT", "touch_point": [0.5, 0.2], "lift_point": [0.53, 0.22], '
        '"typed_text": ""}',
        "click (0.2, 0.5)",
    ),
    (
        "aitw",
        '{"action_type": "DUAL_POINT", "touch_point": [0.8, 0.5], "lift_point": [0.2, 0.5]}',
        "drag (0.5, 0.8) to (0.5, 0.2)",
    ),
]


@pytest.mark.parametrize(("name", "action", "line"), READ)
def test_published_actions_are_read(name: str, action: str, line: str) -> None:
    assert read_single(action, dialect(name)) == read_line(line)


@pytest.mark.parametrize(
    ("name", "action", "why"),
    [
        ("browsergym", "click('a12', button='middle')", "'button' is 'middle', not one of left"),
        ("browsergym", "click('1', modifiers=['Shift'])", "'modifiers' can only be [] here"),
        ("browsergym", "click(12)", "'bid' is 12, not a text"),
        ("browsergym", "check('12')", "'check' is none of click, dblclick"),
        ("browsergym", "click('1')\nclick('2')", "These are 2 gestures (click [1]; click [2])"),
        ("browsergym", "click(__import__('os'))", "its arguments are no plain values"),
        ("browsergym", "x = 3", "it holds more than calls"),
        ("browsergym", "click('1', '2', '3', '4')", "click takes (bid, button, modifiers)"),
        ("browsergym", "select_option('4', ['a', 'b'])", "'options' has 2 entries"),
        ("webarena", "click [a12]", "write one of click [12]"),
        ("pyautogui", "pyautogui.keyDown('ctrl')", "'keyDown' is none of click"),
        ("pyautogui", "pyautogui.press(['a', 'b'])", "several gestures"),
        ("pyautogui", "pyautogui.press('any')", "'any' is no key"),
        ("openai", '{"type": "click"}', "it lacks 'x'"),
        ("openai", '{"type": "drag", "path": [{"x": 1, "y": 2}]}', "a gesture drags straight"),
        ("openai", "[]", "it is no JSON object"),
        ("anthropic", '{"action": "zoom"}', "'zoom' is not an action"),
        ("anthropic", '{"action": "left_click", "coordinate": 3}', "'coordinate' is 3"),
        ("anthropic", '{"action": "key", "text": "a", "repeat": 3}', "'repeat' is not understood"),
        ("ui-tars", "click(start_box='(1)')", "not a point such as '(500,250)'"),
        ("ui-tars", "click(start_box='(1500,2)')", "lie outside of 0 to 1"),
        ("androidworld", '{"action_type": "swipe"}', "'swipe' is not an action"),
        ("aitw", '{"action_type": "TAP"}', "'TAP' is none of DUAL_POINT"),
    ],
)
def test_what_is_no_action_is_refused(name: str, action: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        read_single(action, dialect(name))
    assert why in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_points_are_rounded_to_the_grid_of_the_dialect() -> None:
    gesture = Gesture("click", Point(320.4, 39.6))
    written = json.loads(dialect("openai").write(gesture))
    assert (written["x"], written["y"]) == (320, 40)
    tars = dialect("ui-tars").write(Gesture("click", Point(0.12345, 1, "shares")))
    assert tars == "click(start_box='(123,1000)')"


def test_an_unknown_dialect_names_those_that_there_are() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'browsergym'"):
        dialect("browser-gym")
