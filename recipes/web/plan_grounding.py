"""Plans in the words of an application's help, and what each of their steps is on a real page.

The help has several write-ups of each kind of task, some of other versions of the application, so
not every plan made of it works: only doing it tells. A plan is made of a write-up and the values
that the task states. A step names a control as a person would ("Open 'Delete cat'."). It is
grounded in the elements of the page that is open: the control of the step's kind that shares most
words with it; none, or two that fit alike, and the step cannot be grounded.

Source: Wang et al. 2024 (Large Action Models), where a language model fills in templates and names
the controls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.core.bm25 import words
from palaestra.core.element import Element
from palaestra.core.gesture import Gesture, Words
from palaestra.core.gestures.element_words import words_of

FIND = ("Open 'Cattery'.", "Open 'Search cats'.", "Fill 'Query' with '{name}'.", "Press 'Show'.")
NEW = ("Open 'Cattery'.", "Open 'Create cat'.")
LIST = ("Open 'Cattery'.", "Open 'Browse cats'.")
EDIT = ("Open '{name}'.", "Open 'Update cat'.", "Fill '{field}' with '{value}'.", "Press 'Save'.")
FINISH = "Finish."

HELP: dict[str, tuple[tuple[str, ...], ...]] = {
    r"(Add a new cat: |Please create a cat with |I need a cat in cattery: )(?P<pairs>.+)\.": (
        (*NEW, "{pairs}", "Press 'Save'.", FINISH),
        ("Open 'Cattery'.", "Open 'Add cat'.", "{pairs}", "Press 'Save'.", FINISH),
    ),
    r"(Set|Change) the (?P<field>\w+) of (the|my) cat '(?P<name>.+?)'( to |: it should be )"
    r"(?P<value>.+)\.": (
        (*FIND, *EDIT, FINISH),
        (*FIND, *EDIT[:-1], FINISH),  # forgets to save
    ),
    r"(Delete|I no longer need) the cat '(?P<name>.+?)'.*": (
        (*FIND, "Open '{name}'.", "Open 'Erase cat'.", "Press 'Erase cat'.", FINISH),
        (*FIND, "Open '{name}'.", "Open 'Delete cat'.", "Press 'Delete cat'.", FINISH),
    ),
    r"(How many of my cats have the|Count the cats in cattery whose) (?P<field>\w+) "
    r"(is )?'(?P<value>.+)'[.?]": (
        (
            *LIST,
            "Fill '{field}' with '{value}'.",
            "Press 'Show'.",
            "Answer with how many there are.",
        ),
        (*LIST, "Answer with how many there are."),  # of all
    ),
    r"(What is|Tell me) the (?P<field>\w+) of (the|my) cat '(?P<name>.+)'[.?]": (
        (*FIND, "Answer with the '{field}'."),
        (*LIST, "Answer with the '{field}'."),  # of whichever cat
    ),
}
"""Write-ups of each kind of task, by a pattern of its words; the values are named groups."""

CONTROLS = {"Open": ("link",), "Press": ("button",), "Fill": ("textbox", "combobox")}
STEP = re.compile(r"(Open|Press|Fill) '(.+?)'(?: with '(.+)')?\.")
ANSWER = re.compile(r"Answer with the '(.+)'\.")
COUNT, ROW = "Answer with how many there are.", "Id:"


class NotGrounded(ValueError):
    """A step of a plan that the open page has no control for."""


def plans_of(task: str) -> list[list[str]]:
    """Return a plan for each write-up that the help has of a task; none if it is about others."""
    for pattern, write_ups in HELP.items():
        if found := re.fullmatch(pattern, task):
            return [_filled(steps, found.groupdict()) for steps in write_ups]
    return []


def _filled(steps: Sequence[str], values: dict[str, str]) -> list[str]:
    plan = []
    for step in steps:
        if step == "{pairs}":
            pairs = re.findall(r"(\w+) '(.+?)'", values["pairs"])
            plan += [f"Fill '{field}' with '{value}'." for field, value in pairs]
        else:
            plan.append(step.format(**values))
    return plan


def grounded(step: str, elements: Sequence[Element]) -> Gesture:
    """Return the gesture that a step of a plan is on a page.

    Args:
        step: as plans have them.
        elements: of the page that is open.

    Raises:
        NotGrounded: it is no such step, or no control, or more than one, fits it.
    """
    if step == FINISH:
        return Gesture("answer", text="")
    if step == COUNT:
        return Gesture("answer", text=str(sum(one.name.strip() == ROW for one in elements)))
    if found := ANSWER.fullmatch(step):
        return Gesture("answer", text=_shown(found[1], elements))
    if (parts := STEP.fullmatch(step)) is None or (parts[1] == "Fill") != (parts[3] is not None):
        raise NotGrounded(f"'{step}' is no step of a plan.")
    target = _control(parts[2], CONTROLS[parts[1]], elements)
    named = Words(words_of(elements).get(target.id, target.name))
    if target.role == "combobox":
        return Gesture("select", named, text=parts[3])
    if target.role == "textbox":
        return Gesture("type", named, text=parts[3], clear=bool(target.value))
    return Gesture("click", named)


def _control(name: str, roles: Sequence[str], elements: Sequence[Element]) -> Element:
    """Return the element of these roles that shares most words with a name."""
    asked = set(words(name))
    fit = [(len(asked & set(words(one.name))), one) for one in elements if one.role in roles]
    most = max((shared for shared, _ in fit), default=0)
    best = [one for shared, one in fit if shared == most]
    if not most or len(best) > 1:
        raise NotGrounded(f"No single {' or '.join(roles)} of this page fits '{name}'.")
    return best[0]


def _shown(field: str, elements: Sequence[Element]) -> str:
    """Return what a page shows for a field of its only row."""
    label = f"{field.capitalize()}: "
    found = [one.name.removeprefix(label).strip() for one in elements if one.name.startswith(label)]
    if len(found) != 1:
        raise NotGrounded(f"This page shows {len(found)} times a '{field}'.")
    return found[0]
