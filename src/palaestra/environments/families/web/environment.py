"""Web: tasks of a person's apps, done on the pages of their sites.

Ids: `web/easy`, `web/medium`, `web/hard`: one, two or four goals in a task, as of `apps/easy` and
so on (`families/apps`), with the same verdicts. `web/life-easy` and `web/office-easy` have more
sites. `web/easy-challenge` asks about a site that no other task asks about, `web/easy-new` about
sites that nobody has seen, generated afresh for each task. With `:abroad` the pages are in one of
eight languages. Layout, wording and colours of a site belong to the task. Pages are read as text
(`text_browser.py`); with `:browser` they are in a real browser, which has a picture of them, a
mouse and a keyboard (`picture_browser.py`).

Actions are gestures (`core/gesture.py`), such as `click 'Send message'` or `type [12] 'hello'`. A
task ends with `answer '…'`, empty if it asks for nothing, or with `give up`. After WebArena (Zhou
et al. 2024); ours: the sites, which are compiled from blueprints, and the verdicts, which are
derived.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Capability, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Elemental, Pictured, Sampling
from palaestra.core.task import Task
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.apps.changed_world import shortened, whole
from palaestra.environments.families.apps.composing.composition import LEVELS
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.composing.resuming import rest_of
from palaestra.environments.families.apps.composing.verifier import VERSION, Verdict
from palaestra.environments.families.apps.drawing import CHALLENGE, NEW, Drawn, drawn
from palaestra.environments.families.apps.setting import SETTINGS, parts
from palaestra.environments.families.apps.shown_changes import ShownChanges
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.web.app_sites import START, AppSites
from palaestra.environments.families.web.pages.look import LANGUAGES
from palaestra.environments.families.web.picture_browser import (
    SIZE,
    PictureBrowser,
    sites_by_host,
)
from palaestra.environments.families.web.reference import Walk
from palaestra.environments.families.web.text_browser import TextBrowser
from palaestra.environments.shared.browser_page import PageTime
from palaestra.environments.shared.sampled_gestures import click_or_type

CAPABILITIES = ("state_key", "snapshot", "oracle", "progress", "elements")
ABROAD, BROWSER = "abroad", "browser"
HOME = f"http://{START}/"
INSTRUCTIONS = (
    "You do a task on web pages for a person who is signed in everywhere. Reply with one gesture: "
    "click 'words of a link or button', or click [id]; type 'words of a field' 'text', with clear "
    "at the end to replace what it holds; select 'words of a field' 'option'; go 'address'; back. "
    "When all is done, reply answer '', or answer '…' if the task asks for something."
)


class Web(
    PageTime,
    Replayed,
    Pictured,
    Elemental,
    Sampling,
    id="web",
    version=str(VERSION),
    capabilities=CAPABILITIES,
):
    """Sites of a person's apps, and one task."""

    OVER = "The task is over."
    instructions = INSTRUCTIONS
    package = str(VERSION)

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        which, self._level, self._kind, form = self.parts_of(name)
        self._setting = SETTINGS[which]() if which else None
        self._languages = LANGUAGES if form == ABROAD else ("en",)
        self._real = form == BROWSER
        if self._real:
            browser_program()  # raises before anything starts
        self._session: WebSession | None = None  # of a real browser
        self._world: World | None = None
        self._answer: str | None = None  # what was said at the end
        self._said = ""  # what came of the last gesture, beside the page

    @classmethod
    def parts_of(cls, name: str) -> tuple[str, str, str, str]:
        """Return setting, level, kind and form; see `setting.parts`."""
        return parts(name)

    @classmethod
    def names(cls) -> list[str]:
        kinds = ("", f"-{CHALLENGE}", f"-{NEW}")
        heads = [f"{level}{kind}" for level in LEVELS for kind in kinds]
        heads += [f"{setting}-{level}" for setting in SETTINGS if setting for level in LEVELS]
        return [f"{head}{form}" for head in heads for form in ("", f":{ABROAD}", f":{BROWSER}")]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec, (_, level, _, form) = super().spec_of(name), cls.parts_of(name)
        turns = 4 + 14 * LEVELS.get(level, 1)
        if form != BROWSER:
            return replace(spec, typical_turns=turns)
        pictured = spec.capabilities | {Capability.PICTURE}
        return replace(
            spec, capabilities=pictured, waits=True, virtual_time=True, typical_turns=turns
        )

    def _begin(self, task: Task) -> Observation:
        without_parameters(task)
        self._open(task)
        assert self._world is not None
        self._browser = self._opened(self._sites(self._world, task), task.seed)
        self._shown = ShownChanges(self._world, MAIN)
        person = self._world.state.get("supervisor.person", MAIN) or {}
        self._said = (
            f"You act for {person.get('name')}. It is {self._world.now}.\n"
            f"Task: {self._drawn.task.instruction}"
        )
        return self._observation()

    def _act(self, action: Action) -> Transition:
        try:
            gesture = gesture_in(action)
            if gesture.kind in ("answer", "give up"):
                return self._end(gesture)
            self._browser.do(gesture)
        except InputError as wrong:
            return refused(str(wrong))
        self._said = ""
        return Transition(self._observation(), info=self._shown.take())

    def _open(self, task: Task) -> None:
        """Open the world of a task, in which nothing has happened, without a window."""
        self._end_world()
        self._drawn: Drawn = drawn(self._level, self._kind, task.seed, self._setting)
        self._world, self._answer = self._drawn.open(), None

    def _opened(self, sites: AppSites, seed: int) -> TextBrowser | PictureBrowser:
        """Open a window on the start page."""
        if not self._real:
            return TextBrowser(sites, HOME)
        return PictureBrowser(self._working_session(), sites_by_host(sites), HOME, seed)

    def _working_session(self) -> WebSession:
        session, self._session = self._session, None
        if session is not None and session.failed:
            session.close()
            session = None
        self._session = session or new_session(SIZE, real_time=self.real_time)
        return self._session

    # ── snapshots: the rows and the page, where they say all ─────────────────

    def _saved_state(self) -> bytes:
        if self._over or not self._past or not isinstance(self._browser, PictureBrowser):
            return b""
        page = self._browser.save()
        if not page:
            return b""
        saved = shortened(self._running().snapshot(), self._template()), page
        return json.dumps([b64encode(one).decode() for one in saved]).encode()

    def _return_to(self, task: Task, state: bytes, actions: Sequence[Action]) -> bool:
        short, page = (b64decode(one) for one in json.loads(state))
        self._open(task)
        assert self._world is not None
        world, saved = self._world, whole(short, self._template())
        world.restore(saved)
        session = self._working_session()
        hosts = sites_by_host(self._sites(world, task))
        browser = PictureBrowser.restored(session, hosts, page)
        if browser is None:
            return False
        world.restore(saved)  # the page was asked for again
        self._browser, self._shown = browser, ShownChanges(world, MAIN)
        self._said = ""
        return True

    def _template(self) -> bytes:
        """Return a snapshot of the world in which nothing has happened."""
        world = self._drawn.open()
        try:
            return world.snapshot()
        finally:
            world.close()

    def close(self) -> None:
        self._end_world()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _end_world(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = None

    def elements(self) -> Sequence[Element]:
        self._current()
        return self._browser.elements()

    def picture(self) -> bytes:
        self._current()
        if isinstance(self._browser, TextBrowser):
            self._undeclared(Capability.PICTURE)
        return self._browser.picture()

    def caption(self) -> str:
        return self._said

    def state_key(self) -> str:
        key = self._running().key()
        return hashed(self._current().id, key, self._over, self._answer, self._browser.state())

    def progress(self) -> float:
        """Return the share of the wanted changes, and of the answer, less other changes."""
        return self._verdict().progress

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference; empty if it no longer leads to success."""
        world = self._running()
        if self._over:
            return []
        tried = (
            rest_of(world, task, self._drawn.ways, needed=True) for task in self._drawn.variants()
        )
        found = next((rest for rest in tried if rest is not None), None)
        if found is None:
            return []
        calls, answer = found
        fork = world.fork()
        sites = self._sites(fork, self._current())
        walk = Walk(sites, *self._place())
        walk.make(calls)
        fork.close()
        gestures = [*walk.gestures, Gesture("answer", text=answer or "")]
        return [Action(write_line(gesture)) for gesture in gestures]

    def _place(self) -> tuple[str, Sequence[Element]]:
        """Return the address from which the oracle goes on, and what is shown there."""
        return self._browser.url, self._browser.elements()

    def sample_action(self, rng: random.Random) -> Action:
        """Return a click on something, or a word typed into a field."""
        self._current()
        words = self._drawn.task.instruction.split()
        return Action(click_or_type(self.elements(), words, "back", rng))

    # ── details ──────────────────────────────────────────────────────────────

    def _sites(self, world: World, task: Task) -> AppSites:
        return AppSites.of(world, task.seed, self._languages)

    def _running(self) -> World:
        self._current()
        assert self._world is not None
        return self._world

    def _observation(self) -> Observation:
        page = f"{self._browser.url}\n{flat(self._browser.elements())}"
        return Observation("\n".join(filter(None, [self._said, page])))

    def _verdict(self) -> Verdict:
        return judged(self._running(), self._drawn.ways, self._answer)

    def _end(self, gesture: Gesture) -> Transition:
        self._answer = gesture.text if gesture.kind == "answer" else None
        verdict = self._verdict()
        success = verdict.success and gesture.kind == "answer"
        self._said = self.OVER
        info = {"effect": verdict.effect, "wording": verdict.wording, "reply": verdict.answer}
        return Transition(
            Observation(self.OVER),
            reward=float(success),
            terminated=True,
            success=success,
            info={**info, "collateral": list(verdict.collateral)},
        )
