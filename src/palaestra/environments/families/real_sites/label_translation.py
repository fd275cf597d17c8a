"""References in the language of the pages: they name buttons and fields by what these say there."""

from __future__ import annotations

from dataclasses import replace

from palaestra.core.gesture import Words
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.environments.families.real_sites.application import Application
from palaestra.environments.families.real_sites.task_template import SiteTask

ROLES = ("button", "checkbox", "combobox", "field", "link", "list", "radio", "textbox")
ORDINALS = ("first", "second", "third")


def translated(task: SiteTask, application: Application) -> SiteTask:
    """Return a task whose gestures are written for the pages' language; its goal stays English."""
    if application.variant.language == "en":
        return task

    def lines(gestures: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_line(one, application) for one in gestures)

    return replace(
        task,
        deeds=tuple(replace(one, gestures=lines(one.gestures)) for one in task.deeds),
        wrong=tuple(replace(one, gestures=lines(one.gestures)) for one in task.wrong),
    )


def _line(line: str, application: Application) -> str:
    gesture = read_line(line)
    if isinstance(gesture.target, Words):
        gesture = replace(gesture, target=Words(_target(gesture.target.words, application)))
    if gesture.kind == "select":
        gesture = replace(gesture, text=application.label(gesture.text))
    return write_line(gesture)


def _target(text: str, application: Application) -> str:
    """Translate the words of a target but for its role and its place among several."""
    words = text.split(" ")
    before = [words.pop(0)] if words[0] in ORDINALS else []
    after = [words.pop()] if words and words[-1] in ROLES else []
    label = [application.label(" ".join(words))] if words else []
    return " ".join([*before, *label, *after])
