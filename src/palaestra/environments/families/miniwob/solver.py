"""Reference solutions of those pages whose task can be read off: from the goal and the elements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaestra.core.element import Element
from palaestra.core.element_text import TEXT
from palaestra.core.gesture import Gesture, Id, Point


class Unsolved(Exception):
    """The present page offers no solution that this solver knows."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the solver reads: the goal and the elements below it."""

    goal: str
    elements: Sequence[Element]

    def quoted(self) -> list[str]:
        """Return what the goal has in quotes."""
        return re.findall(r'"(.*?)"', self.goal)

    def all(self, role: str) -> list[Element]:
        """Return the elements of a role, in order."""
        return [element for element in self.elements if element.role == role]

    def one(self, role: str, name: str) -> Element:
        """Return the first element of a role and a name; without one, the case does not count."""
        for same in (_plain, _lower):
            for element in self.all(role):
                if same(element.name) == same(name):
                    return element
        raise Unsolved

    def nth(self, role: str, index: int) -> Element:
        """Return an element of a role by its number from 0."""
        found = self.all(role)
        if not -len(found) <= index < len(found):
            raise Unsolved
        return found[index]

    def words(self) -> list[str]:
        """Return the texts of the page, without those of the goal."""
        left, found = _plain(self.goal), []
        for element in self.elements:
            text = _plain(element.name)
            if element.role != TEXT or not text:
                continue
            if left.startswith(text):
                left = left[len(text) :].strip()
            else:
                found.append(element.name)
        return found


Plan = list[Gesture]


def plan(name: str, page: Page) -> Plan:
    """Return the gestures that solve a page from its present state; empty where none are known."""
    try:
        return SOLVERS[name](page)
    except Unsolved:
        return []


def _plain(text: str) -> str:
    return " ".join(text.split())


def _lower(text: str) -> str:
    return _plain(text).lower()


def _click(element: Element) -> Gesture:
    return Gesture("click", Id(element.id))


def _fill(element: Element, text: str) -> Plan:
    if element.value == text:
        return []
    return [Gesture("type", Id(element.id), text=text, clear=True)]


def _submit(page: Page, name: str = "Submit") -> Gesture:
    return _click(page.one("button", name))


def _only_quoted(page: Page) -> str:
    found = page.quoted()
    if not found:
        raise Unsolved
    return found[0]


# ── one for each kind of page ────────────────────────────────────────────────


def _button(page: Page) -> Plan:
    return [_click(page.one("button", _only_quoted(page)))]


def _first_button(page: Page) -> Plan:
    return [_click(page.nth("button", 0))]


def _button_one(page: Page) -> Plan:
    return [_click_beside(page.one("button", "ONE"), page.one("button", "TWO"))]


def _both_buttons(page: Page) -> Plan:
    first, second = page.one("button", "ONE"), page.one("button", "TWO")
    pressed = "focused" in first.states
    return [*([] if pressed else [_click_beside(first, second)]), _click(second)]


def _click_beside(element: Element, above: Element) -> Gesture:
    """Click on an element, at one of its corners if another one covers its middle."""
    box, over = element.box, above.box
    if box is None or over is None or not over.contains(*box.centre):
        return _click(element)
    xs, ys = (box.x + 1, box.x + box.width - 1), (box.y + 1, box.y + box.height - 1)
    for x, y in ((x, y) for x in xs for y in ys):
        if not over.contains(x, y):
            return Gesture("click", Point(x, y))
    raise Unsolved


def _link(page: Page) -> Plan:
    wanted = _plain(_only_quoted(page))
    for element in page.elements:
        if "clickable" in element.states and _plain(element.name) == wanted:
            return [_click(element)]
    raise Unsolved


def _checkboxes(page: Page) -> Plan:
    found = re.fullmatch(r"Select (.*) and click Submit\.?", page.goal)
    if found is None:
        raise Unsolved
    wanted = {_plain(name) for name in found[1].split(", ")}
    wrong = [
        box
        for box in page.all("checkbox")
        if ("checked" in box.states) != (_plain(box.name) in wanted)
    ]
    return [*map(_click, wrong), _submit(page)]


def _radio(page: Page) -> Plan:
    found = re.fullmatch(r"Select (.*) and click Submit\.?", page.goal)
    if found is None:
        raise Unsolved
    button = page.one("radio", found[1])
    return [*([] if "checked" in button.states else [_click(button)]), _submit(page)]


def _tab(page: Page) -> Plan:
    found = re.search(r"Tab #\d+", page.goal)
    if found is None:
        raise Unsolved
    return [_click(page.one("link", found[0]))]


def _widget(page: Page) -> Plan:
    kind = _only_quoted(page)
    if kind in ("text", "textarea"):
        for element in page.all("textbox"):
            if ("multiline" in element.states) == (kind == "textarea"):
                return [_click(element)]
        raise Unsolved
    return [_click(page.nth(kind, 0))]


def _text(page: Page) -> Plan:
    return [*_fill(page.nth("textbox", 0), _only_quoted(page)), _submit(page)]


def _cased_text(page: Page) -> Plan:
    text = _only_quoted(page)
    text = text.upper() if "upper case" in page.goal else text.lower()
    return [*_fill(page.nth("textbox", 0), text), _submit(page)]


def _focus(page: Page) -> Plan:
    found = re.search(r"the (\d+)\w\w ", page.goal)
    return [_click(page.nth("textbox", int(found[1]) - 1 if found else 0))]


def _dialog(page: Page) -> Plan:
    found = page.quoted()
    label = found[0] if found else "x"
    return [_click(page.one("button", "Close" if label.lower() == "x" else label))]


def _login(page: Page) -> Plan:
    found = page.quoted()
    if len(found) != 2:
        raise Unsolved
    fields = [page.nth("textbox", index) for index in (0, 1)]
    typed = [_fill(field, text) for field, text in zip(fields, found, strict=True)]
    return [*typed[0], *typed[1], _submit(page, "Login")]


def _password(page: Page) -> Plan:
    text = _only_quoted(page)
    fields = [page.nth("textbox", index) for index in (0, 1)]
    return [*_fill(fields[0], text), *_fill(fields[1], text), _submit(page)]


def _list(page: Page) -> Plan:
    found = re.fullmatch(r"Select (.*) from the (?:scroll )?list and click Submit\.?", page.goal)
    if found is None:
        raise Unsolved
    field = page.nth("combobox", 0)
    chosen = [] if field.value == found[1] else [Gesture("select", Id(field.id), text=found[1])]
    return [*chosen, _submit(page)]


def _section(page: Page) -> Plan:
    section = page.nth("tab", 0)
    opened = [] if "expanded" in section.states else [_click(section)]
    return [*opened, _submit(page)]


def _sum(page: Page) -> Plan:
    found = re.search(r"(-?\d+) *([-+x]) *(-?\d+)", " ".join(page.words()))
    if found is None:
        raise Unsolved
    first, second = int(found[1]), int(found[3])
    results = {"+": first + second, "-": first - second, "x": first * second}
    return [*_fill(page.nth("textbox", 0), str(results[found[2]])), _submit(page)]


SOLVERS: dict[str, Callable[[Page], Plan]] = {
    "choose-list": _list,
    "click-button": _button,
    "click-button-sequence": _both_buttons,
    "click-checkboxes": _checkboxes,
    "click-checkboxes-large": _checkboxes,
    "click-checkboxes-transfer": _checkboxes,
    "click-collapsible": _section,
    "click-collapsible-nodelay": _section,
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-link": _link,
    "click-option": _radio,
    "click-tab": _tab,
    "click-test": _first_button,
    "click-test-2": _button_one,
    "click-test-transfer": _button_one,
    "click-widget": _widget,
    "enter-password": _password,
    "enter-text": _text,
    "enter-text-2": _cased_text,
    "enter-text-dynamic": _text,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "login-user": _login,
    "simple-arithmetic": _sum,
    "unicode-test": _button,
}
"""The pages that this solver knows, and how it solves them."""
