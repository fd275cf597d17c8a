"""Challenges: forty small web pages in five categories, easy for people and hard for agents.

Ids: `challenges/NAME`, a page; `challenges/basics`, `input`, `cognition`, `workflow` and `play`,
whose pages take turns; `challenges/all`. What has to be done depends on the task's seed. The page
sends what was done to its site, which runs in this process, and the site answers with a completion
code; the task ends with `answer 'CODE'`. The code is in no page before. A right code counts only if
the site gave it away. After WebGames (Thomas et al. 2025); the pages are ours.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.browser.sites import HostedPage
from palaestra.browser.web_gestures import do
from palaestra.core.element_text import tree
from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import Task
from palaestra.environments.base import hashed, refused
from palaestra.environments.families.challenges import challenge_registry
from palaestra.environments.families.challenges.challenge_registry import ChallengeTasks
from palaestra.environments.families.challenges.challenge_site import (
    HOME,
    HOST,
    TRIES,
    ChallengeSite,
)
from palaestra.environments.shared.browser_page import BrowserPage
from palaestra.environments.shared.sampled_gestures import click_or_type

SIZE = (960, 640)  # of the window, in pixels
INSTRUCTIONS = (
    "You do a task on a web page. Reply with one gesture: click 'words of a button', click [id] or "
    "click (320, 240), a point of the picture, which is 960 pixels wide and 640 high; double, "
    "right and hover likewise; type 'words of a field' 'text', with clear at the end to replace "
    "what it holds; press 'Control+a'; select 'words of a list' 'option'; drag [3] to [9]; scroll "
    "down 300; upload [4] 'cv.pdf'; tab 0; back; wait 5. Once the task is done, the page shows a "
    "completion code: reply answer 'CODE'."
)


class Challenges(
    BrowserPage,
    Sampling,
    id="challenges",
    capabilities=("state_key", "snapshot", "oracle", "elements", "picture"),
    waits=True,
    typical_turns=30,  # references have up to 21
):
    """One page, or several that take turns; and one task."""

    OVER = "The task is over."
    instructions = INSTRUCTIONS

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._plan: list[str] = []  # what is left of the reference

    @classmethod
    def names(cls) -> list[str]:
        return challenge_registry.names()

    @classmethod
    def tasks(cls, environment: str) -> ChallengeTasks:
        return ChallengeTasks(environment)

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        if name:
            challenge_registry.parameters_of(name, 0)  # raises for an unknown one
        return super().spec_of(name)

    def _begin(self, task: Task) -> Observation:
        self.site = site_of(task)
        session = self._working_session(SIZE)
        challenge = self.site.challenge
        session.begin({HOST: self.site}, HOME, task.seed, files=challenge.files)
        self._plan = [*map(_written, challenge.plan), self._ending()]
        self._said = f"Task: {challenge.goal}"
        return Observation(f"{self._said}\n{tree(session.elements())}")

    def _act(self, action: Action) -> Transition:
        session = self._here()
        try:
            gesture = gesture_in(action)
            if gesture.kind in ("answer", "give up"):
                return self._end(gesture)
            files = {*session.files}
            do(session, gesture)
        except InputError as wrong:
            return refused(str(wrong))
        self._follow(write_line(gesture))
        got = [f"Downloaded '{name}'." for name in session.files if name not in files]
        self._said = " ".join(got)
        return Transition(Observation(f"{self._said}\n{tree(session.elements())}".strip()))

    def _end(self, gesture: Gesture) -> Transition:
        right = gesture.text.strip().upper() == self.site.code
        success = gesture.kind == "answer" and right and self.site.solved
        self._said = self.OVER
        return Transition(
            Observation(self.OVER),
            reward=float(success),
            terminated=True,
            success=success,
            info={"shown": self.site.solved},
        )

    def _follow(self, line: str) -> None:
        """Keep up the plan: its next gesture was done, or it begins again on a new page."""
        session = self._here()
        if self.site.solved:
            self._plan = [self._ending()]
        elif self._plan and line == self._plan[0]:
            del self._plan[0]
        elif session.tab.dialog or len(session.tabs) > 1 or self.site.wrong >= TRIES:
            self._plan = []
        else:
            again = _written(f"go '{HOME}'")
            self._plan = [again, *map(_written, self.site.challenge.plan), self._ending()]

    def _ending(self) -> str:
        return _written(f"answer '{self.site.code}'")

    def hosted(self) -> HostedPage:
        return HostedPage(self.site, self.site.challenge.goal, self.site.challenge.files)

    def state_key(self) -> str:
        """Hash the gestures so far: what a page's script holds is in no element."""
        return hashed(self._current().id, self._past)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference; empty where only another page could lead on."""
        self._here()
        return [] if self._over else [Action(line) for line in self._plan]

    def sample_action(self, rng: random.Random) -> Action:
        """Return a click on something, or a word typed into a field."""
        words = self.site.challenge.goal.split()
        return Action(click_or_type(self.elements(), words, "wait 1", rng))


def site_of(task: Task) -> ChallengeSite:
    """Return the site of a task, on which nothing was done."""
    name = challenge_registry.challenge_of(task)
    return ChallengeSite(name, task.seed, challenge_registry.made(name, task.seed))


def _written(line: str) -> str:
    return write_line(read_line(line))
