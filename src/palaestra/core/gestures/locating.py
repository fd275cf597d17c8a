"""What a gesture's target stands for: an element of the page, or a point of its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from palaestra.core.bm25 import scores, words
from palaestra.core.element import Element
from palaestra.core.element_text import described, is_interactive, marked, named
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Mark, Point, Target, Words
from palaestra.core.gestures.gesture_line import write_target

_ARTICLES = frozenset(("the", "a", "an"))
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_ROLES: dict[str, tuple[str, ...]] = {
    "button": ("button",),
    "checkbox": ("checkbox",),
    "combobox": ("combobox", "dropdown", "list", "field"),
    "heading": ("heading", "title"),
    "image": ("image", "picture"),
    "link": ("link",),
    "listbox": ("listbox", "list"),
    "menuitem": ("menuitem", "item"),
    "option": ("option",),
    "radio": ("radio", "option"),
    "searchbox": ("searchbox", "field", "box", "input"),
    "slider": ("slider",),
    "spinbutton": ("spinbutton", "field", "input"),
    "switch": ("switch", "toggle"),
    "tab": ("tab",),
    "textbox": ("textbox", "field", "box", "input"),
}
"""The words by which people call elements of a role."""


def without_articles(asked: Sequence[str]) -> list[str]:
    """Return words without "the", "a" and "an"."""
    return [word for word in asked if word not in _ARTICLES]


def role_words(element: Element) -> tuple[str, ...]:
    """Return the words by which people call elements of its role."""
    return _ROLES.get(element.role, (element.role.lower(),))


def spoken(element: Element) -> set[tuple[str, ...]]:
    """Return its name with each word for its role, in either order, in words without articles."""
    name = without_articles(words(element.name))
    called = role_words(element)
    return {(*name, role) for role in called} | {(role, *name) for role in called}


def element_of(target: Target, elements: Sequence[Element]) -> Element:
    """Return the element that a target stands for; a point stands for the innermost one there.

    Raises:
        InputError: there is none, or words fit several; the message says so in one sentence.
    """
    match target:
        case Id(id):
            found = next((element for element in elements if element.id == id), None)
            if found is None:
                raise InputError(
                    f"There is no element {write_target(target)}: it has gone or never was; "
                    "look at what is there now."
                )
            return found
        case Mark(number):
            numbered = marked(elements)
            if not 1 <= number <= len(numbered):
                known = f"they go from #1 to #{len(numbered)}" if numbered else "there are none"
                raise InputError(f"There is no mark #{number}: {known}.")
            return numbered[number - 1]
        case Words(text):
            return _worded(text, elements)
        case Point(x, y, "pixels"):
            under = [one for one in elements if one.box is not None and one.box.contains(x, y)]
            if not under:
                raise InputError(f"There is no element at {write_target(target)}.")
            return under[-1]  # children come after what is around them
        case _:
            raise InputError(f"{write_target(target)} is in shares; turn it into pixels first.")


def point_of(
    target: Target, elements: Sequence[Element], size: tuple[int, int]
) -> tuple[float, float]:
    """Return the point of a picture of `size` (width, height) in pixels that a target stands for.

    Raises:
        InputError: the point is outside, the element is not in the picture, or there is none.
    """
    width, height = size
    match target:
        case Point(x, y, "shares"):
            return min(x * width, width - 1), min(y * height, height - 1)
        case Point(x, y):
            if not (0 <= x < width and 0 <= y < height):
                raise InputError(
                    f"The point {write_target(target)} is outside of the picture, which is "
                    f"{width} pixels wide and {height} high."
                )
            return x, y
    element = element_of(target, elements)
    if element.box is None:
        raise InputError(f"{described(element)} is not in the picture; scroll to it.")
    return element.box.centre


def with_points(
    gesture: Gesture,
    elements: Sequence[Element],
    size: tuple[int, int],
    unit: Literal["pixels", "shares"] = "pixels",
) -> Gesture:
    """Return a gesture whose targets are points, for dialects that have no others.

    Raises:
        InputError: a target has no point; see `point_of`.
    """

    def point(target: Target | None) -> Target | None:
        if target is None:
            return None
        x, y = point_of(target, elements, size)
        return Point(x / size[0], y / size[1], unit) if unit == "shares" else Point(x, y)

    return replace(gesture, target=point(gesture.target), to=point(gesture.to))


def _worded(text: str, elements: Sequence[Element]) -> Element:
    """Return the element that words describe.

    By their exact name; else by name and role ("the Buy button"), of several by their order, too
    ("the second Buy button"); else the best match of the words that name no role (BM25), among
    elements of the role that the others name. Elements to act on go before all others.
    """
    asked = words(text)
    acted_on = [element for element in elements if is_interactive(element)]
    if found := _called(asked, acted_on, elements):
        return _only(text, found)
    plain = without_articles(asked)
    if plain and plain[0] in ORDINALS:
        place, rest = ORDINALS.index(plain[0]), plain[1:]
        if place < len(found := _called(rest, acted_on, elements) or _best(rest, acted_on)):
            return found[place]
    for among in (acted_on, elements):
        if found := _best(plain, among):
            return _only(text, found)
    there = f"there are {named(acted_on)}" if acted_on else "nothing there can be acted on"
    raise InputError(f"No element fits {text!r}: {there}.")


def _called(
    asked: Sequence[str], acted_on: Sequence[Element], elements: Sequence[Element]
) -> list[Element]:
    """Return the elements with a name, or else with a name and a role."""
    for among in (acted_on, elements):
        if found := [element for element in among if words(element.name) == [*asked]]:
            return found
    plain = tuple(without_articles(asked))
    for among in (acted_on, elements):
        if found := [element for element in among if plain in spoken(element)]:
            return found
    return []


def _best(plain: Sequence[str], elements: Sequence[Element]) -> list[Element]:
    """Return the elements that match best; empty if none has one of the words."""
    roles = {role for role, called in _ROLES.items() if not set(called).isdisjoint(plain)}
    role_words = {word for role in roles for word in _ROLES[role]}
    content = [word for word in plain if word not in role_words]
    of_role = [element for element in elements if not roles or element.role in roles]
    if not content:
        return of_role if roles else []
    fits = scores(" ".join(content), [f"{one.name} {one.value}" for one in of_role])
    top = max(fits, default=0.0)
    return [one for one, fit in zip(of_role, fits, strict=True) if fit == top and fit > 0]


def _only(text: str, found: Sequence[Element]) -> Element:
    if len(found) > 1:
        raise InputError(
            f"{text!r} fits {len(found)} elements: {named(found)}; name one by its id."
        )
    return found[0]
