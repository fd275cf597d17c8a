"""MiniWoB++: a hundred small web pages, each with a task, in a real browser.

The pages are those of the package, and a task begins as on them: with a seed. Clicks and keys are
the browser's real input events. Each gesture takes a second of the page's own time, and after a
minute of it the task is over. The reward is the page's, without its discount for time. Names joined
by "+" are compositions (`composition.py`), with a minute for each part.

Source: Shi et al. 2017 (World of Bits); Liu et al. 2018 (MiniWoB++); Furuta et al. 2023 (CompWoB).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaestra.browser.web_gestures import KINDS, do
from palaestra.core.element import Element
from palaestra.core.element_text import is_interactive, tree
from palaestra.core.environment import (
    Action,
    Capability,
    Observation,
    Spec,
    Transition,
    declared,
)
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Point
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Varied
from palaestra.core.task import Task
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.composition import (
    Composition,
    is_composition,
    listed,
)
from palaestra.environments.families.miniwob.single_page import SinglePage
from palaestra.environments.families.miniwob.solver import SOLVERS
from palaestra.environments.shared.browser_page import BrowserPage

INSTRUCTIONS = """You use a web page. Do what it asks by one gesture at a time, such as:
click [12]
type [7] 'hello' clear
select [5] 'Red'
press 'Enter'
scroll down 100
drag [3] to [9]
The numbers are those of the page's elements; click (80, 120) clicks a point of its picture, which \
is {} pixels wide and {} high. Reply with one gesture and nothing else."""
NOT_HERE = ("upload", "go", "back", "forward", "tab")  # each page is the whole world
TYPED = ("ab", "7", "Ann")


class MiniWob(
    BrowserPage,
    Varied,
    id="miniwob",
    version="2",  # 1: another seed for chance while a page loads, and a page loaded for each task
    capabilities={"elements", "picture", "state_key", "snapshot"},
    waits=True,
    typical_turns=10,
):
    """One page of MiniWoB++, a mixture of pages (one in each task), or a composition of them."""

    package = pages.VERSION
    frames_on_demand = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._page = Composition(name) if is_composition(name) else SinglePage(name)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        if is_composition(name):
            turns = 10 * len(Composition(name).parts)
            spec = replace(declared(cls).named(name), typical_turns=turns)
        else:
            spec = super().spec_of(name)
            if name not in SOLVERS and name not in pages.MIXTURES:
                return spec
        return replace(spec, capabilities=spec.capabilities | {Capability.ORACLE})

    @classmethod
    def names(cls) -> list[str]:
        """Return the pages, the mixtures and some compositions; others are made by their names."""
        return [*pages.names(), *pages.MIXTURES, *listed()]

    @classmethod
    def factors(cls, name: str) -> Mapping[str, Sequence[str]]:
        """Return a composition's other wording, sequence and layout, and its parts alone."""
        return Composition(name).factors() if is_composition(name) else {}

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS.format(*self._page.size)

    def _begin(self, task: Task) -> Observation:
        without_parameters(task, "choose a page by its name instead")
        session = self._working_session(self._page.size)
        self._page.begin(session, task.seed)
        self._said = self._page.goal
        return Observation(f"{self._said}\n{tree(session.elements())}")

    def _act(self, action: Action) -> Transition:
        session = self._here()
        try:
            gesture = gesture_in(action)
            if gesture.kind == "give up":
                self._said = "You gave up."
                return Transition(Observation(self._said), terminated=True)
            if gesture.kind in NOT_HERE:
                known = ", ".join(kind for kind in KINDS if kind not in NOT_HERE)
                raise InputError(f"'{gesture.kind}' has no use on this page; it takes: {known}.")
            do(session, gesture)
        except InputError as wrong:
            return refused(str(wrong))
        done, reward, late = self._outcome()
        self._said = "" if not done else "Solved." if reward > 0 else "Not solved."
        seen = tree(session.elements())
        return Transition(
            Observation(f"{self._said}\n{seen}".strip()),
            reward=reward,
            terminated=done and not late,
            truncated=done and late,
            success=done and reward > 0,
        )

    def _outcome(self) -> tuple[bool, float, bool]:
        """Return whether the task is over, its reward, and whether time ran out."""
        found = self._here().watched_value
        if found is None:  # a dialog is open, or the page was left
            return False, 0.0, False
        done, reward, late = found
        return bool(done), float(reward) if done else 0.0, bool(late)

    def state_key(self) -> str:
        """Hash the seed, the page's time and all that it shows; time passes with each gesture."""
        session = self._here()
        shown = (session.elements(), session.pointer, session.now)
        return hashed(self._current().seed, self._over, self._page.goal, shown)

    def oracle(self) -> list[Action]:
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        if self._over:
            return []
        return [Action(write_line(gesture)) for gesture in self._page.plan(self._readable())]

    def _readable(self) -> list[Element]:
        """Return the elements with what was typed in place of a password's dots."""
        session = self._here()
        seen = list(session.elements())
        hidden = [n for n, one in enumerate(seen) if one.value and not one.value.strip(pages.DOT)]
        if hidden:
            typed = session.tab.evaluate(pages.PASSWORDS) or []  # only read: no time passes
            if len(typed) == len(hidden):
                for number, text in zip(hidden, typed, strict=True):
                    seen[number] = replace(seen[number], value=str(text))
        return seen

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a click on an element, now and then another gesture."""
        seen = self._here().elements()
        places = [element.point for element in seen if element.point and is_interactive(element)]
        drawn = rng.random()
        if places and drawn < 0.6:
            x, y = rng.choice(places)
            gesture = Gesture("click", Point(round(x), round(y)))
        elif drawn < 0.8:
            gesture = Gesture("type", text=rng.choice(TYPED))
        elif drawn < 0.9:
            gesture = Gesture("press", text=rng.choice(("Tab", "ArrowDown", "Escape")))
        else:
            gesture = Gesture("scroll", amount=(0.0, rng.choice((-50.0, 50.0))))
        return Action(write_line(gesture))
