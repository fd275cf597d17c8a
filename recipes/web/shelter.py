"""A small site, the tasks that a proposer reads off it, and tasks that a person wrote.

Source: Zhou et al. 2024, Proposer-Agent-Evaluator (PAE). Their proposer is a language model that
sees pictures of a site; here it is a rule that walks through the site and reads the buttons of its
pages. An agent trains on what was proposed and is tested on what was written.

`proposed`: each task is a button that the proposer saw ("Feed Milo."). `guessed`: any of the verbs
that it saw with any of the animals, so that the site has a button for two in five of the tasks
only. The proposer does not know which; an impossible task is never solved. The tests of both are
`WRITTEN`. Where an animal lives is told by no task: a link leads to each of four pages, which have
three animals and two verbs each. The site orders links and buttons by the task's seed. The first
button that is pressed ends the episode. Pages are read as text; `proposed:browser` has them in
Chromium.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from urllib.parse import quote, unquote, urlsplit

from palaestra.browser.installation import browser_program
from palaestra.browser.shared_browser import new_session
from palaestra.browser.web_session import WebSession
from palaestra.core.element import Element
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Words
from palaestra.core.gestures.element_words import words_of
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Elemental
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.web.pages.app_site import Page
from palaestra.environments.families.web.picture_browser import SIZE, PictureBrowser, sites_by_host
from palaestra.environments.families.web.text_browser import TextBrowser

HOST = "shelter"
HOME = f"http://{HOST}/"
PROPOSED, GUESSED = "proposed", "guessed"
BROWSER = ":browser"

Window = TextBrowser | PictureBrowser

PAGES = {
    "Cats": (("Milo", "Luna", "Simba"), ("Feed", "Brush")),
    "Dogs": (("Rex", "Bella", "Bruno"), ("Feed", "Walk")),
    "Birds": (("Kiwi", "Coco", "Rio"), ("Feed", "Teach")),
    "Fish": (("Nemo", "Dory", "Bubbles"), ("Feed", "Count")),
}
WRITTEN = (
    ("Please feed Milo, he is hungry.", "Feed Milo"),
    ("Could you brush Milo for me?", "Brush Milo"),
    ("Luna needs her food, so feed Luna.", "Feed Luna"),
    ("Brush Luna until her fur is smooth.", "Brush Luna"),
    ("I forgot to feed Simba today.", "Feed Simba"),
    ("Would you brush Simba, please?", "Brush Simba"),
    ("It is time to feed Rex.", "Feed Rex"),
    ("Go and walk Rex in the park.", "Walk Rex"),
    ("Bella is waiting for you to feed her.", "Feed Bella"),
    ("Please walk Bella before it rains.", "Walk Bella"),
    ("Feed Bruno, but nobody else.", "Feed Bruno"),
    ("Bruno wants out: walk Bruno.", "Walk Bruno"),
    ("I would like you to feed Kiwi.", "Feed Kiwi"),
    ("Teach Kiwi a new word.", "Teach Kiwi"),
    ("Can you feed Coco this morning?", "Feed Coco"),
    ("Coco is clever, please teach Coco.", "Teach Coco"),
    ("Do not forget to feed Rio.", "Feed Rio"),
    ("Rio has never been taught: teach Rio.", "Teach Rio"),
    ("Someone has to feed Nemo.", "Feed Nemo"),
    ("Count Nemo for the list.", "Count Nemo"),
    ("Dory is hungry again, feed Dory.", "Feed Dory"),
    ("We need to count Dory, too.", "Count Dory"),
    ("Give food to Bubbles: feed Bubbles.", "Feed Bubbles"),
    ("Has anyone counted Bubbles? Count Bubbles.", "Count Bubbles"),
)
"""Tasks in the words of a person, and the button that each one means."""


class Shelter:
    """The site, in the order of one seed; it holds which button was pressed."""

    def __init__(self, seed: int) -> None:
        self._seed, self.pressed = seed, ""

    @property
    def by_host(self) -> Mapping[str, object]:
        return {HOST: self}

    def respond(self, method: str, url: str, body: str = "") -> Page | None:
        """Answer a request: a button's address presses it, any other one is a page."""
        address = urlsplit(url)
        if address.netloc != HOST:
            return None
        head, _, name = unquote(address.path).strip("/").partition("/")
        if head == "do":
            self.pressed = name
            return Page(200, _page(f"<p>Done: {escape(name)}</p>"))
        links = [f'<a href="/{page}">{page}</a>' for page in self._shuffled(PAGES)]
        forms = [
            f'<form method="post" action="/do/{quote(button)}"><button>{button}</button></form>'
            for button in self._shuffled(buttons(head))
        ]
        return Page(200, _page("\n".join([*links, *forms])))

    def _shuffled(self, names: Iterable[str]) -> list[str]:
        known = sorted(names)
        return random.Random(f"{self._seed} {known}").sample(known, len(known))


def _page(body: str) -> str:
    return f"<!doctype html><title>Shelter</title>{body}"


def buttons(page: str) -> list[str]:
    """Return the buttons of a page; none of any other, such as the home page."""
    animals, verbs = PAGES.get(page, ((), ()))
    return [f"{verb} {animal}" for animal in animals for verb in verbs]


def seen_buttons(window: Window) -> list[str]:
    """Return the buttons of all pages to which the present one links, as a visitor sees them."""
    found = []
    for link in [one.name for one in window.elements() if one.role == "link"]:
        window.do(Gesture("click", Words(f"{link} link")))
        found += [one.name for one in window.elements() if one.role == "button"]
    return sorted(found)


def propose(seen: Sequence[str], kind: str, seed: int) -> str:
    """Return the button that a proposed task asks for, which of `guessed` ones may not exist."""
    rng = random.Random(f"proposal {seed}")
    if kind == PROPOSED:
        return rng.choice(seen)
    verbs, animals = ({words.split()[at] for words in seen} for at in (0, 1))
    return f"{rng.choice(sorted(verbs))} {rng.choice(sorted(animals))}"


class ShelterTasks(
    Replayed,
    Elemental,
    capabilities={"elements", "state_key", "snapshot", "oracle"},
    typical_turns=4,
):
    """Proposed tasks on the site to train on, and written ones as tests."""

    instructions = "Do the task on the site. Reply with one click, such as: click 'Cats'"

    def __init__(self, name: str = PROPOSED) -> None:
        super().__init__(name)
        self._kind, colon, _ = name.partition(":")
        self._real = bool(colon)
        if self._real:
            browser_program()  # raises before anything starts
        self._session: WebSession | None = None  # of a real browser
        self._seen: list[str] = []  # by the proposer, which visits the site once
        self._site, self._asked, self._goal = Shelter(0), "", ""

    @classmethod
    def names(cls) -> list[str]:
        return [f"{kind}{form}" for kind in (PROPOSED, GUESSED) for form in ("", BROWSER)]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return replace(super().spec_of(name), waits=name.endswith(BROWSER))

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _begin(self, task: Task) -> Observation:
        without_parameters(task)
        if task.split is Split.TEST:
            self._goal, self._asked = WRITTEN[task.seed // 3 % len(WRITTEN)]
        else:
            self._seen = self._seen or seen_buttons(self._opened(Shelter(0), 0))
            self._asked = propose(self._seen, self._kind, task.seed)
            self._goal = f"{self._asked}."
        self._site = Shelter(task.seed)
        self._window = self._opened(self._site, task.seed)
        return self._observation()

    def _opened(self, site: Shelter, seed: int) -> Window:
        """Open a window on the home page."""
        if not self._real:
            return TextBrowser(site, HOME)
        if self._session is not None and self._session.failed:
            self.close()
        self._session = self._session or new_session(SIZE)
        return PictureBrowser(self._session, sites_by_host(site), HOME, seed)

    def _act(self, action: Action) -> Transition:
        try:
            gesture = gesture_in(action)
            if gesture.kind == "give up":
                return Transition(Observation("You gave up."), terminated=True)
            if gesture.kind != "click":
                raise InputError(f"'{gesture.kind}' has no use on this site; click on something.")
            self._window.do(gesture)
        except InputError as wrong:
            return refused(str(wrong))
        over, success = bool(self._site.pressed), self._site.pressed == self._asked
        return Transition(self._observation(), float(success), terminated=over, success=success)

    def _observation(self) -> Observation:
        elements = self.elements()
        return Observation(f"{self._goal}\n{flat(elements, words=words_of(elements))}")

    def elements(self) -> Sequence[Element]:
        self._current()
        return self._window.elements()

    @property
    def asked(self) -> str:
        """The button that the present task asks for."""
        return self._asked

    def caption(self) -> str:
        return self._goal

    def state_key(self) -> str:
        seed = self._current().seed
        return hashed(seed, self._over, self._goal, self._site.pressed, self._window.state())

    def oracle(self) -> list[Action]:
        """Return the clicks that lead to the button; none where the site has no such button."""
        pages = [page for page in PAGES if self._asked in buttons(page)]
        if self._over or not pages:
            return []
        here = any(one.name == self._asked for one in self.elements())
        return [_click(name) for name in ([self._asked] if here else [pages[0], self._asked])]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a click on a link or a button."""
        some = [one.name for one in self.elements() if one.role in ("link", "button")]
        return _click(rng.choice(some)) if some else Action("give up")


def _click(name: str) -> Action:
    return Action(write_line(Gesture("click", Words(name))))
