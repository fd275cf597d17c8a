"""Compositions: several of the package's tasks in one document, under one instruction.

`click-button+enter-text` shows both pages beside each other and asks for both, in that order; with
`:transition` the second page takes the place of the first once that is solved. `:reverse` names
the last one first ("…, but before that …"); what is to be done stays the same. The task of seed s
holds the tasks of seed s of its pages, so that results can be compared page by page and task by
task. A part that is failed, or finished before an earlier one, fails the whole.

Source: Furuta et al. 2023 (CompWoB), whose 50 pages are written by hand. Here they are made by a
rule of all pages that have a reference solution.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template

from palaestra.browser.sites import Request, Response
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.gesture import Gesture
from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.solver import SOLVERS, Page, plan

JOIN = "+"
TRANSITION, REVERSE = "transition", "reverse"
MOST = 8  # parts, as many as the longest of CompWoB's
COLUMNS, ABOVE = 4, 90  # parts beside each other; pixels above them, for the instruction
GROUPS = ((20, 2, ""), (10, 3, ""), (5, 4, ""), (5, 6, ""), (7, 2, TRANSITION), (3, 3, TRANSITION))
"""The listed compositions: how many of how many parts, in which layout; 50, as in CompWoB."""
_PATH = "/composition.html"


class Composition:
    """A document of several pages; `goal` is known once it has begun."""

    def __init__(self, name: str) -> None:
        """Read a name such as `click-button+enter-text:transition:reverse`.

        Raises:
            UnknownName: a part has no reference solution, or is no page.
            InputError: there are too many parts, one is named twice, or the form is unknown.
        """
        head, *forms = name.split(":")
        self.parts = tuple(head.split(JOIN))
        for part in self.parts:
            if part not in SOLVERS:
                raise UnknownName("page for compositions", part, SOLVERS)
        if len({*self.parts}) < len(self.parts):
            raise InputError(f"The composition '{name}' names a page twice; name each once.")
        if not 2 <= len(self.parts) <= MOST:
            raise InputError(f"The composition '{name}' has {len(self.parts)} parts; give 2 to 8.")
        if forms not in ([], [TRANSITION], [REVERSE], [TRANSITION, REVERSE]):
            raise InputError(
                f"The composition '{name}' has an unknown form; behind the pages stands nothing, "
                f":{TRANSITION}, :{REVERSE} or :{TRANSITION}:{REVERSE}."
            )
        self._transition, self._reverse = TRANSITION in forms, REVERSE in forms
        columns, rows = min(len(self.parts), COLUMNS), -(-len(self.parts) // COLUMNS)
        self.size = (pages.SIZE[0] * columns, ABOVE + pages.SIZE[1] * rows)
        self.goal = ""
        self._goals: list[str] = []
        self._first: list[list[Element]] = []  # the elements of each part at the beginning

    def begin(self, session: WebSession, seed: int) -> None:
        """Open the document in a session and begin its task."""
        sites, address = {pages.HOST: self._respond}, f"http://{pages.HOST}{_PATH}"
        session.begin(sites, address, seed, watch=pages.STATE)
        program = json.dumps(pages.begin(seed, pages.SECONDS * len(self.parts)))
        self._goals = list(map(str, session.run(f"composition.begin({program})")))
        self.goal = joined(self._goals, self._reverse)
        self._first = _by_frame(session.elements())
        shown = json.dumps([self.goal, self._transition])
        session.run(f"composition.show(...{shown})")

    def plan(self, elements: Sequence[Element]) -> list[Gesture]:
        """Return the gestures that solve what is left; parts not yet shown are as at first."""
        there = {found[0].id: found for found in _by_frame(elements)}
        ids = [first[0].id for first in self._first]
        done = 0
        while done < len(ids) and ids[done] not in there:
            done += 1
        left: list[Gesture] = []
        for name, goal, first in list(zip(self.parts, self._goals, self._first, strict=True))[
            done:
        ]:
            part = plan(name, Page(goal, there.get(first[0].id, first)))
            if not part:
                return []
            left += part
        return left

    def factors(self) -> dict[str, list[str]]:
        """Return the names that differ in one thing: order of words or parts, layout, parts."""
        head = JOIN.join(self.parts)
        transition = f":{TRANSITION}" if self._transition else ""
        reverse = f":{REVERSE}" if self._reverse else ""
        other_layout = "" if transition else f":{TRANSITION}"
        other_wording = "" if reverse else f":{REVERSE}"
        return {
            "wording": [f"{head}{transition}{other_wording}"],
            "sequence": [f"{JOIN.join(reversed(self.parts))}{transition}{reverse}"],
            "layout": [f"{head}{other_layout}{reverse}"],
            "parts": list(self.parts),
        }

    def _respond(self, request: Request) -> Response:
        if request.path != _PATH:
            return pages.site()(request)
        frames = "".join(f'<iframe src="{pages.address(part)}"></iframe>' for part in self.parts)
        return Response(_template().substitute(frames=frames).encode())


def is_composition(name: str) -> bool:
    """Return whether a name of this family is a composition's."""
    return JOIN in name


def joined(goals: Sequence[str], reverse: bool) -> str:
    """Return one instruction for several goals, which are imperative sentences, in their order."""
    plain = [" and ".join(map(_clause, goal.rstrip(". ").split(". "))) for goal in goals]
    if reverse:
        last, *before = reversed(plain)
        text = f"{last}, but before that {', and before that '.join(before)}."
    else:
        text = f"{', and then '.join(plain)}."
    return f"{text[:1].upper()}{text[1:]}"


@cache
def listed() -> tuple[str, ...]:
    """Return the listed compositions: equally often of each page, chosen by a fixed seed."""
    rng = random.Random("compositions")
    waiting: list[str] = []
    found: list[str] = []
    for count, length, form in GROUPS:
        for _ in range(count):
            parts: list[str] = []
            while len(parts) < length:
                if not any(name not in parts for name in waiting):
                    waiting += rng.sample(sorted(SOLVERS), len(SOLVERS))
                chosen = next(name for name in waiting if name not in parts)
                waiting.remove(chosen)
                parts.append(chosen)
            found.append(JOIN.join(parts) + (f":{form}" if form else ""))
    return tuple(found)


def _clause(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _by_frame(elements: Sequence[Element]) -> list[list[Element]]:
    """Return the elements of each frame that is shown, the frame first."""
    frame_of: dict[str | None, list[Element]] = {}
    found: list[list[Element]] = []
    for element in elements:
        if element.role == "Iframe":
            frame_of[element.id] = [element]
            found.append(frame_of[element.id])
        elif element.parent in frame_of:
            frame_of[element.id] = frame_of[element.parent]
            frame_of[element.id].append(element)
    return found


@cache
def _template() -> Template:
    return Template(files(__package__).joinpath("composition.html").read_text())
