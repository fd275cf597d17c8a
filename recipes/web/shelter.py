"""A small site, the tasks that a proposer reads off it, and tasks that a person wrote.

Source: Zhou et al. 2024, Proposer-Agent-Evaluator (PAE). Their proposer is a language model that
sees pictures of a site; here it is a rule that walks through the site in the browser and reads the
buttons of its pages. An agent trains on what was proposed and is tested on what was written.

`proposed`: each task is a button that the proposer saw ("Feed Milo."). `guessed`: any of the verbs
that it saw with any of the animals, so that the site has a button for two in five of the tasks
only. The proposer does not know which; an impossible task is never solved. The tests of both are
`WRITTEN`. Where an animal lives is told by no task: a link leads to each of four pages, which have
three animals and two verbs each. The site orders links and buttons by the task's seed. The first
button that is pressed ends the episode.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from html import escape

from palaestra.browser.sites import Request, Response
from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import WebSession
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Words
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.shared.browser_page import BrowserPage

HOST = "shelter"
HOME = f"http://{HOST}/"
SIZE = (320, 240)  # of the window, in pixels
ACTED_ON = ("link", "button")
PROPOSED, GUESSED = "proposed", "guessed"

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

    def __call__(self, request: Request) -> Response:
        head, _, name = request.path.strip("/").partition("/")
        if head == "do":
            self.pressed = name
            return _page(f"<p>Done: {escape(name)}</p>")
        links = [f'<a href="/{page}">{page}</a>' for page in self._shuffled(PAGES)]
        forms = [
            f'<form action="/do/{button}"><button>{button}</button></form>'
            for button in self._shuffled(buttons(head))
        ]
        return _page("\n".join([*links, *forms]))

    def _shuffled(self, names: Sequence[str] | dict[str, object]) -> list[str]:
        return random.Random(f"{self._seed} {sorted(names)}").sample(sorted(names), len(names))


def _page(body: str) -> Response:
    return Response(f"<!doctype html><title>Shelter</title>{body}".encode())


def buttons(page: str) -> list[str]:
    """Return the buttons of a page; none of any other, such as the home page."""
    animals, verbs = PAGES.get(page, ((), ()))
    return [f"{verb} {animal}" for animal in animals for verb in verbs]


def seen_buttons(session: WebSession) -> list[str]:
    """Return the buttons of all pages to which the home page links, as a visitor sees them."""
    session.begin({HOST: Shelter(0)}, HOME, seed=0)
    links = [element.name for element in session.elements() if element.role == "link"]
    found = []
    for link in links:
        do(session, Gesture("click", Words(link)))
        found += [element.name for element in session.elements() if element.role == "button"]
    return sorted(found)


def propose(seen: Sequence[str], kind: str, seed: int) -> str:
    """Return the button that a proposed task asks for, which of `guessed` ones may not exist."""
    rng = random.Random(f"proposal {seed}")
    if kind == PROPOSED:
        return rng.choice(seen)
    verbs, animals = ({words.split()[at] for words in seen} for at in (0, 1))
    return f"{rng.choice(sorted(verbs))} {rng.choice(sorted(animals))}"


class ShelterTasks(
    BrowserPage, capabilities={"elements", "picture", "state_key", "snapshot", "oracle"},
    waits=True, typical_turns=4,
):  # fmt: skip
    """Proposed tasks on the site to train on, and written ones as tests."""

    instructions = "Do the task on the site. Reply with one click, such as: click 'Cats'"

    def __init__(self, name: str = PROPOSED) -> None:
        super().__init__(name)
        self._seen: list[str] = []  # by the proposer, which visits the site once
        self._site, self._asked, self._goal = Shelter(0), "", ""

    @classmethod
    def names(cls) -> list[str]:
        return [PROPOSED, GUESSED]

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def _begin(self, task: Task) -> Observation:
        without_parameters(task)
        session = self._working_session(SIZE)
        if task.split is Split.TEST:
            self._goal, self._asked = WRITTEN[task.seed // 3 % len(WRITTEN)]
        else:
            self._seen = self._seen or seen_buttons(session)
            self._asked = propose(self._seen, self.spec.name, task.seed)
            self._goal = f"{self._asked}."
        self._site = Shelter(task.seed)
        session.begin({HOST: self._site}, HOME, task.seed)
        self._said = self._goal
        return self._observation()

    def _act(self, action: Action) -> Transition:
        session = self._here()
        try:
            gesture = gesture_in(action)
            if gesture.kind == "give up":
                return Transition(Observation("You gave up."), terminated=True)
            if gesture.kind != "click":
                raise InputError(f"'{gesture.kind}' has no use on this site; click on something.")
            do(session, gesture)
        except InputError as wrong:
            return refused(str(wrong))
        over, success = bool(self._site.pressed), self._site.pressed == self._asked
        return Transition(self._observation(), float(success), terminated=over, success=success)

    def _observation(self) -> Observation:
        return Observation(f"{self._said}\n{flat(self._here().elements())}")

    def state_key(self) -> str:
        session = self._here()
        shown = (session.elements(), session.pointer, session.now)
        return hashed(self._current().seed, self._over, self._goal, self._site.pressed, shown)

    def oracle(self) -> list[Action]:
        """Return the clicks that lead to the button; none where the site has no such button."""
        pages = [page for page in PAGES if self._asked in buttons(page)]
        if self._over or not pages:
            return []
        some = self._here().elements()
        here = {one.name: Id(one.id) for one in some if one.role in ACTED_ON}
        if self._asked in here:
            return [_click(here[self._asked])]
        return [_click(here[pages[0]]), _click(Words(self._asked))]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a click on a link or a button."""
        some = [one.id for one in self._here().elements() if one.role in ACTED_ON]
        return _click(Id(rng.choice(some))) if some else Action("give up")


def _click(target: Id | Words) -> Action:
    return Action(write_line(Gesture("click", target)))
