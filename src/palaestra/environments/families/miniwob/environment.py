"""MiniWoB++: a hundred small web pages, each with a task, in a real browser.

The pages are those of the package, and a task begins as on them: with a seed. Clicks and keys are
the browser's real input events. Each gesture takes a second of the page's own time, and after a
minute of it the task is over. The reward is the page's, without its discount for time.

Source: Shi et al. 2017 (World of Bits); Liu et al. 2018 (MiniWoB++).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.browser.web_gestures import KINDS, do
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.element_text import is_interactive, tree
from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Point
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Elemental, Pictured
from palaestra.core.task import Task
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.miniwob import pages
from palaestra.environments.families.miniwob.solver import SOLVERS, Page, plan

INSTRUCTIONS = """You use a web page. Do what it asks by one gesture at a time, such as:
click [12]
type [7] 'hello' clear
select [5] 'Red'
press 'Enter'
scroll down 100
drag [3] to [9]
The numbers are those of the page's elements; click (80, 120) clicks a point of its picture, which \
is 160 pixels wide and 210 high. Reply with one gesture and nothing else."""
NOT_HERE = ("upload", "go", "back", "forward", "tab")  # each page is the whole world
TYPED = ("ab", "7", "Ann")


class MiniWob(
    Replayed,
    Pictured,
    Elemental,
    id="miniwob",
    capabilities={"elements", "picture", "state_key", "snapshot"},
    typical_turns=10,
):
    """One page of MiniWoB++, or a mixture of pages, one in each task."""

    package = pages.VERSION

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        browser_program()  # raises before anything starts
        self._session: WebSession | None = None
        self._page = self._goal = self._said = ""

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        if name not in SOLVERS and name not in pages.MIXTURES:
            return spec
        return replace(spec, capabilities=spec.capabilities | {Capability.ORACLE})

    @classmethod
    def names(cls) -> list[str]:
        return [*pages.names(), *pages.MIXTURES]

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    def _begin(self, task: Task) -> Observation:
        without_parameters(task, "choose a page by its name instead")
        if self._session is not None and self._session.failed:
            self.close()
        if self._session is None:
            self._session = new_session(pages.SIZE)
        session = self._session
        page, before = pages.of_task(self.spec.name, task.seed), self._page
        again = page == before and pages.can_begin_again(page) and session.again(task.seed)
        if not again:
            sites, address = {pages.HOST: pages.site()}, pages.address(page)
            session.begin(sites, address, task.seed, watch=pages.STATE)
            session.hold()
        self._page = page
        self._goal = str(session.run(pages.begin(task.seed)))
        self._said = self._goal
        return Observation(f"{self._goal}\n{tree(session.elements())}")

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
        done, reward, late = self._state()
        self._said = "" if not done else "Solved." if reward > 0 else "Not solved."
        seen = tree(session.elements())
        return Transition(
            Observation(f"{self._said}\n{seen}".strip()),
            reward=reward,
            terminated=done and not late,
            truncated=done and late,
            success=done and reward > 0,
        )

    def _state(self) -> tuple[bool, float, bool]:
        """Return whether the task is over, its reward, and whether time ran out."""
        found = self._here().watched_value
        if found is None:  # a dialog is open, or the page was left
            return False, 0.0, False
        done, reward, late = found
        return bool(done), float(reward) if done else 0.0, bool(late)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def elements(self) -> Sequence[Element]:
        return self._here().elements()

    def picture(self) -> bytes:
        return self._here().picture()

    def caption(self) -> str:
        return self._said

    def state_key(self) -> str:
        """Hash the seed, the page's time and all that it shows; time passes with each gesture."""
        session = self._here()
        shown = (session.elements(), session.pointer, session.now)
        return hashed(self._current().seed, self._over, self._goal, shown)

    def oracle(self) -> list[Action]:
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        session = self._here()
        if self._over:
            return []
        found = plan(self._page, Page(self._goal, session.elements()))
        return [Action(write_line(gesture)) for gesture in found]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a click on an element, now and then another gesture."""
        seen = self._here().elements()
        places = [
            element.box.centre
            for element in seen
            if element.box is not None and is_interactive(element)
        ]
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

    def _here(self) -> WebSession:
        self._current()
        assert self._session is not None
        return self._session
