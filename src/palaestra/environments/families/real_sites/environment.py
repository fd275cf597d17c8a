"""Sites: real applications in a real browser, and tasks judged by the rows that are left.

Ids: `sites/shop-easy`, `sites/shop-medium` and so on: templates of a site and a level.
`sites/shop:NAME`: one template, or those with a tag. With `-large` at the end: in large worlds
(shop, code host); with `-de` and others: with pages in that language (code host). Actions are
gestures (`core/gesture.py`); a task ends with `answer '…'`, or with `give up` if what it asks for
cannot be done. After WebArena (Zhou et al. 2024) and WorkArena (Drouin et al. 2024); ours: the
worlds, which are drawn by seed, and the tasks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urldefrag

from palaestra.browser import page_snapshot
from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.browser.sites import Request
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import BEGIN as PAGE_BEGIN
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Elemental, Pictured, Sampling
from palaestra.core.task import Split, Task
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.apps.composing.verifier import VERSION, Verdict
from palaestra.environments.families.apps.stock.user import told
from palaestra.environments.families.real_sites import template_registry
from palaestra.environments.families.real_sites.application import BEGIN
from palaestra.environments.families.real_sites.label_translation import translated
from palaestra.environments.families.real_sites.saved_world import Loaded, SavedWorld
from palaestra.environments.families.real_sites.site_judging import is_solved, left, verdict
from palaestra.environments.families.real_sites.site_world import SiteWorld, application
from palaestra.environments.families.real_sites.task_template import SiteTask, TaskTemplate
from palaestra.environments.shared.browser_page import PageTime
from palaestra.environments.shared.sampled_gestures import click_or_type

FIRST_PICTURE = "document.images.length ? document.images[0].src : ''"
SIZE = (1200, 800)  # of the window, in pixels
WORLDS = 16  # worlds of a split
TRIES = 100  # draws until a template finds in a world what it needs
INSTRUCTIONS = (
    "You do a task in a web browser. Reply with one gesture: click 'words of a link or button', or "
    "click [id]; type 'words of a field' 'text', with clear at the end to replace what it holds; "
    "select 'words of a list' 'option'; upload 'words of a field' 'file'; scroll down 400; press "
    "'Enter'; go 'address'; back. When all is done, reply answer '', or answer '…' if the task "
    "asks for something; separate several things by commas. If the task cannot be done, change "
    "nothing and reply give up."
)


@dataclass(frozen=True)
class DrawnTask:
    """A task, and the world that it is in."""

    template: TaskTemplate
    world: int  # the seed
    task: SiteTask


@lru_cache(maxsize=512)
def drawn(name: str, seed: int) -> DrawnTask:
    """Draw the task of a seed; its world belongs to its split.

    Raises:
        EnvironmentFault: no template found what it needs.
    """
    number, split = divmod(seed, len(Split))
    templates, variant = template_registry.chosen(name), template_registry.variant_of(name)
    rng = random.Random(f"sites {name} {seed}")
    for _ in range(TRIES):
        chosen = rng.choice(templates)
        which = len(Split) * rng.randrange(WORLDS) + split
        world = SiteWorld(chosen.sites, which, variant)
        task = chosen.make(world, rng)
        world.close()
        if task is not None:
            task = translated(task, application(chosen.sites[0], variant))
            return DrawnTask(chosen, which, task)
    raise EnvironmentFault("reset", f"no template of '{name}' found what it needs, {number}")


class Sites(
    PageTime,
    Replayed,
    Pictured,
    Elemental,
    Sampling,
    id="sites",
    version=str(VERSION),
    capabilities=("state_key", "snapshot", "oracle", "progress", "elements", "picture"),
    waits=True,
    virtual_time=True,
):
    """Real applications, and one task."""

    OVER = "The task is over."
    instructions = INSTRUCTIONS
    package = str(VERSION)

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        browser_program()  # raises before anything starts
        for template in template_registry.chosen(name):
            for site in template.sites:
                application(site, template_registry.variant_of(name))  # so does this
        self._session: WebSession | None = None
        self._world: SiteWorld | None = None
        self._answer: str | None = None
        self._solved = False
        self._plan: list[str] = []  # what is left of the reference
        self._seen: set[str] = set()  # addresses of the task's hops that were open
        self._said = ""  # what stands above the page
        self._arrived: Loaded | None = None  # how all was when the page had been loaded
        self.way_back = ""  # of the last restore: "state", "page" (its gestures) or "replayed"

    @classmethod
    def names(cls) -> list[str]:
        return template_registry.names()

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        turns = {"easy": 8, "medium": 16, "hard": 40}
        templates = template_registry.chosen(name) if name in cls.names() else ()
        longest = max((turns[one.level] for one in templates), default=8)
        return replace(super().spec_of(name), typical_turns=longest)

    def _begin(self, task: Task) -> Observation:
        without_parameters(task, "choose a template by its name instead")
        self.way_back = "replayed"
        session, world = self._open(task)
        first = next(iter(world.sites.values())).application.address
        cookies = world.cookies() if self._site_task.signed_in else {}
        files = self._site_task.files
        session.begin(world.by_host(), first, task.seed, files, cookies=cookies)
        self._seen = set()
        self._plan = [line for deed in self._site_task.deeds for line in deed.gestures]
        self._plan.append(self._site_task.ending())
        self._said = f"It is {BEGIN:%A, %d %B %Y}.\nTask: {self._site_task.goal}"
        observation = self._observation()
        self._arrived = Loaded.now(0, session, world, self._own())
        return observation

    def _open(self, task: Task) -> tuple[WebSession, SiteWorld]:
        """Open the world of a task, in which nothing has happened."""
        self._end_world()
        if self._session is not None and self._session.failed:
            self.close()
        if self._session is None:
            self._session = new_session(SIZE, real_time=self.real_time)
        self._drawn = drawn(self.spec.name, task.seed)
        self._site_task = self._drawn.task
        variant = template_registry.variant_of(self.spec.name)
        self._world = SiteWorld(self._drawn.template.sites, self._drawn.world, variant)
        self._answer = None
        self._solved = False
        return self._session, self._world

    # ── snapshots: the rows and the page, where they say all ─────────────────

    def _saved_state(self) -> bytes:
        session, world = self._here()
        if self._over or not self._past or session.tab.dialog is not None:
            return b""
        address, _ = urldefrag(session.tab.address())
        if world.shown is None or world.shown.address != address:
            return b""
        assert self._arrived is not None
        saved = SavedWorld.of(session, world, self._own(), self._arrived)
        return b"" if saved is None else saved.packed()

    def _return_to(self, task: Task, state: bytes, actions: Sequence[Action]) -> bool:
        session, world = self._open(task)
        saved, files = SavedWorld.read(state), self._site_task.files
        self._arrived, self.way_back = saved.loaded, ""
        if saved.restore(session, world, files):
            self._become(saved.own)
            self.way_back = "state"
            return True
        if session.failed or not saved.revisit(session, world, files):
            return False
        self._become(saved.loaded.own)
        done_again = all(self._act(action).valid for action in actions[saved.loaded.done :])
        if done_again and saved.is_back(session, world, self._own()):
            self.way_back = "page"
        return self.way_back == "page"

    def _own(self) -> dict[str, Any]:
        """Return what the environment itself knows, as values of JSON."""
        return {"plan": [*self._plan], "seen": sorted(self._seen), "said": self._said}

    def _become(self, own: Mapping[str, Any]) -> None:
        self._plan, self._seen, self._said = [*own["plan"]], set(own["seen"]), own["said"]

    def _act(self, action: Action) -> Transition:
        session, world = self._here()
        try:
            gesture = gesture_in(action)
            if gesture.kind in ("answer", "give up"):
                return self._end(gesture)
            if gesture.kind == "say":
                return self._answer_question(gesture)
            world.at(BEGIN + timedelta(milliseconds=session.now - PAGE_BEGIN))
            loads = session.tab.born
            do(session, gesture)
        except InputError as wrong:
            return refused(str(wrong))
        self._follow(write_line(gesture))
        self._said = ""
        if session.tab.dialog is None:
            self._seen |= {session.tab.address()} & {*self._site_task.hops}
        observation = self._observation()
        if session.tab.born != loads and session.tab.dialog is None:
            self._arrived = Loaded.now(len(self._past) + 1, session, world, self._own())
        return Transition(observation)

    def _answer_question(self, gesture: Gesture) -> Transition:
        """Return what the person says who is asked."""
        self._follow(write_line(gesture))
        self._said = f"The person says: {told(self._site_task.facts.items(), gesture.text)}"
        return Transition(self._observation())

    def _follow(self, line: str) -> None:
        """Keep up the plan: its next gesture was done, or it begins again at the first page."""
        if self._plan and line == self._plan[0]:
            del self._plan[0]
            return
        session, world = self._here()
        todo = left(world, self._site_task)
        if todo is None or session.tab.dialog is not None:
            self._plan = []
            return
        first = next(iter(world.sites.values())).application.address
        self._plan = [line for deed in todo for line in (f"go {first!r}", *deed.gestures)]
        self._plan.append(self._site_task.ending())

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
        return self._here()[0].elements()

    def picture(self) -> bytes:
        return self._here()[0].picture()

    def caption(self) -> str:
        return self._said

    def state_key(self) -> str:
        session, world = self._here()
        shown = session.tab.address(), session.elements(), session.pointer, session.current
        held = [page_snapshot.cookie_parts(one) for one in session.cookies()]
        key = world.key(), session.now, shown, held, session.lifetimes.saved()
        return hashed(self._current().id, self._over, self._answer, sorted(self._seen), key)

    def progress(self) -> float:
        """Return the share of the hops seen, the wanted rows and the answer, less other changes."""
        if self._solved:
            return 1.0
        task, hops = self._site_task, len(self._site_task.hops)
        parts = sum(len(deed.changes) for deed in task.deeds) + (task.answer is not None) + 1
        done = len(self._seen) + self._verdict().progress * parts
        return min(done / (hops + parts), 0.99)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference; empty if it no longer leads to success."""
        self._here()
        return [] if self._over else [Action(line) for line in self._plan]

    def sample_action(self, rng: random.Random) -> Action:
        """Return a click on something, or a word typed into a field."""
        words = self._site_task.goal.split()
        return Action(click_or_type(self.elements(), words, "scroll down 100", rng))

    # ── details ──────────────────────────────────────────────────────────────

    def _here(self) -> tuple[WebSession, SiteWorld]:
        self._current()
        assert self._session is not None
        assert self._world is not None
        return self._session, self._world

    def _observation(self) -> Observation:
        session, _ = self._here()
        page = f"{session.tab.address()}\n{flat(session.elements())}"
        return Observation("\n".join(filter(None, [self._said, page])))

    def _shows_the_wanted(self) -> bool:
        """Return whether the page is open that is wanted, with a picture that is wanted."""
        session, world = self._here()
        task = self._site_task
        if task.page and session.tab.address() != task.page:
            return False
        if not task.pictures:
            return True
        source = str(session.run(FIRST_PICTURE))
        site = world.by_host().get(Request("GET", source).host)
        return site is not None and site(Request("GET", source)).body in task.pictures

    def _verdict(self) -> Verdict:
        return verdict(self._here()[1], self._site_task, self._answer)

    def _end(self, gesture: Gesture) -> Transition:
        self._answer = gesture.text if gesture.kind == "answer" else None
        found = self._verdict()
        self._said = self.OVER
        success = is_solved(found, self._site_task, self._answer) and self._shows_the_wanted()
        self._solved = success
        template = self._drawn.template
        info = {"effect": found.effect, "reply": found.answer, "collateral": [*found.collateral]}
        return Transition(
            Observation(self.OVER),
            reward=float(success),
            terminated=True,
            success=success,
            info={**info, "template": template.name, "tags": [*template.tags]},
        )
