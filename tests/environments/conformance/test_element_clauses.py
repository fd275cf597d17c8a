"""The clause for elements notices each way in which they can be wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from palaestra.core.element import Box, Element
from palaestra.core.task import TaskSet
from palaestra.environments.conformance.element_clauses import elements_are_of_the_state
from palaestra.environments.conformance.subject import Broken, Subject
from tests.environments.order_form import Form, OrderForm


class Changed(OrderForm):
    """A form of which one element is another one."""

    def changed(self, element: Element) -> Element:
        return element

    def elements(self) -> Sequence[Element]:
        *page, last = super().elements()
        return [*page, self.changed(last)]


class Twin(Changed):
    def changed(self, element: Element) -> Element:
        return replace(element, id="name")


class Orphan(Changed):
    def changed(self, element: Element) -> Element:
        return replace(element, parent="elsewhere")


class Endless(Changed):
    def changed(self, element: Element) -> Element:
        return replace(element, box=Box(0, 0, math.inf, 1))


class Unsorted(Changed):
    def changed(self, element: Element) -> Element:
        return replace(element, states=("focused", "checked"))


class Counting(Changed):
    """Numbers its pages over all environments of the process."""

    pages = itertools.count()

    def changed(self, element: Element) -> Element:
        return replace(element, name=f"page {next(self.pages)}")


class Differing(Changed):
    """Numbers its environments."""

    made = itertools.count()

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.number = next(self.made)

    def changed(self, element: Element) -> Element:
        return replace(element, name=f"form {self.number}")


class Blurred(OrderForm):
    """Forgets in a snapshot where the focus is."""

    def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)
        self.form = Form(**{**vars(self.form), "focus": "", "down": 0.0})


def check(form: type[OrderForm]) -> None:
    elements_are_of_the_state(Subject(form, TaskSet("form"), steps=6, per_split=1))


def test_a_sound_form_passes() -> None:
    check(OrderForm)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (Twin, "two elements have the id 'name'"),
        (Orphan, "has the parent 'elsewhere', which is not before it"),
        (Endless, "its numbers must be finite"),
        (Unsorted, "which are not sorted"),
        (Counting, "the elements differ when they are asked for again"),
        (Differing, "the elements of two environments with task"),
        (Blurred, "the elements of task .*, restored"),
    ],
)
def test_a_broken_form_fails(form: type[OrderForm], why: str) -> None:
    with pytest.raises(Broken, match=why):
        check(form)
