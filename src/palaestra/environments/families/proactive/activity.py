"""A stream of a person's activity, and what of it they want help with.

A stream has three errands. For each, a mail reminds the person of something (a goal of
`apps/composing`); they look up what they need for it, and answer the mail. The answer says whether
they are going to do it. If so, they do it themselves some minutes later, unless an offer to do it
was accepted before. Between errands, mails arrive and the person looks at other things.

Streams 2k and 2k + 1 of a split are twins: world, mails and times are the same, and what the
person wants in one of them they do not want in the other. In each, they want one or two of the
three, so neither silence nor an offer for every errand is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Call, Goal
from palaestra.environments.families.apps.composing.stock_atoms import named_contacts
from palaestra.environments.families.apps.composing.verifier import Judge, Ran, Wanted, run
from palaestra.environments.families.apps.drawing import TRIES, WORLDS
from palaestra.environments.families.apps.events import At, Deed, Event
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.setting import SETTINGS
from palaestra.environments.families.apps.state import Template
from palaestra.environments.families.apps.timed.clock_app import CLOCK, slow_suite
from palaestra.environments.families.apps.timed.timed_atoms import my_address, person_of
from palaestra.environments.families.apps.timed.timed_tasks import mails
from palaestra.environments.families.apps.world import MINUTE, World

ERRANDS = 3
MASKS = tuple(tuple(bool(number >> at & 1) for at in range(ERRANDS)) for number in range(1, 7))
"""Which errands are wanted: one or two of three; the complement of each is another one."""

APPS = {"core": "", "life": "life"}
"""The settings of `apps` in which the person acts, by the name of the environment."""

READS = frozenset({"mail.search_messages", "mail.list_messages"})
"""What a reference must not call: it could find the mails of the stream."""

YES = (
    "Thanks, I will do it in a moment.",
    "Right, I am going to do that now.",
    "Thank you. That is next on my list.",
    "Good that you say so, I still have to do it.",
)
NO = (
    "Thanks, that is done already.",
    "Right, but I have decided against it.",
    "Thank you. My brother takes care of it.",
    "Good that you say so, but it is no longer needed.",
)
"""What the person answers; the two lists begin alike, word for word."""

SUBJECTS = ("A reminder", "Do not forget", "On your list", "Still open", "Before I forget it")


@dataclass(frozen=True, slots=True)
class Errand:
    """Something that the person is reminded of, and does or does not want to do."""

    number: int
    goal: Goal
    wanted: bool

    @property
    def reminded(self) -> str:
        """The name of the event in which they are reminded of it."""
        return f"remind {self.number}"

    @property
    def decided(self) -> str:
        """The name of the event in which they say whether they want it."""
        return f"answer {self.number}"

    @property
    def done(self) -> str:
        """The name of the event in which they do it themselves."""
        return f"do {self.number}"

    def is_open(self, world: World) -> bool:
        """Return whether the person is going to do it, and has not done it."""
        if not self.wanted or not world.schedule.of(self.decided).times:
            return False
        return not world.schedule.of(self.done).times

    def offer(self, world: World) -> Call | None:
        """Return the call that does it now; None if a service refuses it, or it takes more."""
        with closing(_untouched(world)) as copy:
            ran = run(self.goal.atom.steps(self.goal.slots), copy, MAIN)
        made = changing(world.suite, ran)
        return made[0] if len(made) == 1 and not ran.refused else None

    def is_done_by(self, world: World, call: Call) -> bool:
        """Return whether a call changes what the person's own next steps would, less what is free.

        Texts must mention what theirs must; declared alternatives of the goal are as good.
        """
        with closing(_untouched(world)) as copy:
            if not copy.call(call.api, call.arguments, MAIN).ok:
                return False
            judge = Judge(world.state.columns)
            ways = list(self._ways(world, judge))
            return bool(ways) and judge.verdict(copy.state.changes(), "", ways).success

    def _ways(self, world: World, judge: Judge) -> Iterable[Wanted]:
        atom, slots = self.goal.atom, self.goal.slots
        for way in (slots, *atom.alternatives(slots, world)):
            with closing(_untouched(world)) as copy:
                ran = run(atom.steps(way), copy, MAIN)
                if not ran.refused:
                    yield judge.wanted(copy.state.changes(), ran, atom.mentions(way))


@dataclass(frozen=True, slots=True)
class Stream:
    """What happens in an episode, and what is wanted in it."""

    suite: Suite
    template: Template
    events: tuple[Event, ...]
    errands: tuple[Errand, ...]
    needed: tuple[str, ...]  # the APIs that the errands and their near misses call

    def open(self) -> World:
        """Return its world, in which nothing has happened."""
        return World(self.suite, self.template, START, self.events)


def changing(suite: Suite, ran: Ran) -> list[Call]:
    """Return the calls of a reference that change something."""
    return [made for made in ran.calls if suite.apis[made.api].changes]


@cache
def suite_of(name: str) -> Suite:
    """Return the apps of a setting, whose calls take time, and the clock."""
    return slow_suite(SETTINGS[APPS[name]]().suite.apps.values())


def stream(name: str, seed: int) -> Stream:
    """Return the stream of a seed in a setting, a key of `APPS`."""
    number, split = divmod(seed, len(Split))
    return twins(name, number // 2, split)[number % 2]


@lru_cache(maxsize=256)
def twins(name: str, pair: int, split: int) -> tuple[Stream, Stream]:
    """Draw two streams that differ in what the person wants."""
    setting, rng = SETTINGS[APPS[name]](), random.Random(f"stream {name} {split} {pair}")
    template = world_template(setting.suite, "small", len(Split) * (pair % WORLDS) + split)
    suite = suite_of(name)
    with closing(World(suite, template, START)) as world:
        for _ in range(TRIES):
            if (goals := _goals(world, setting.atoms, rng)) is None:
                continue
            mask, plan = rng.choice(MASKS), _Plan(world, rng)
            one, other = (
                plan.stream(template, goals, wanted)
                for wanted in (mask, tuple(not one for one in mask))
            )
            if passes(one) and passes(other):
                return one, other
    raise EnvironmentFault("reset", f"no stream passed the gate for the pair {pair}")


def passes(made: Stream) -> bool:
    """Return whether a stream may be used.

    Every event happens, both where nobody helps and where all offers are made as soon as they are
    wanted. At each answer, the reference's call does what is wanted, and no near miss and no other
    errand's call does.
    """
    return _happens(made, helped=False) and _happens(made, helped=True)


# ── details ──────────────────────────────────────────────────────────────────


def _happens(made: Stream, *, helped: bool) -> bool:
    """Return whether all of a stream happens, left alone or with all the help that is wanted."""
    with closing(made.open()) as world:
        answers = {errand.decided: errand for errand in made.errands}
        by_time = sorted(made.events, key=lambda event: event.timing.first() or 0)
        for errand in [answers[event.name] for event in by_time if event.name in answers]:
            world.advance((world.schedule.of(errand.decided).due or 0) - world.seconds)
            if (call := errand.offer(world)) is None or not errand.is_done_by(world, call):
                return False
            if any(errand.is_done_by(world, wrong) for wrong in _wrong(world, made, errand)):
                return False
            if helped and errand.wanted:
                world.call(call.api, call.arguments, MAIN)
                world.schedule.cancel(errand.done)
        while (due := world.schedule.next_second()) is not None:
            world.advance(due - world.seconds)
        silent = set(world.schedule.silent())
        return silent == ({e.done for e in made.errands if e.wanted} if helped else set())


def _wrong(world: World, made: Stream, errand: Errand) -> Iterable[Call]:
    """Yield the calls of near misses, and those of the other errands."""
    atom, rng = errand.goal.atom, random.Random(0)
    for slots in atom.near_misses(errand.goal.slots, world, rng):
        with closing(_untouched(world)) as copy:
            yield from changing(world.suite, run(atom.steps(slots), copy, MAIN))
    for other in made.errands:
        if other != errand and (call := other.offer(world)) is not None:
            yield call


def _untouched(world: World) -> World:
    """Return a copy in which nothing counts as changed yet, and nothing happens."""
    return World(world.suite, world.state.template(), world.now)


def _goals(world: World, atoms: Sequence[Atom], rng: random.Random) -> list[Goal] | None:
    """Draw goals of different kinds that one changing call reaches; None if this draw gave none."""
    if len(named_contacts(world)) < ERRANDS + 2:  # who write the reminders and other mails
        return None
    kinds: dict[str, list[Atom]] = {}
    for atom in atoms:
        if not atom.answers:
            kinds.setdefault(atom.name, []).append(atom)
    goals: list[Goal] = []
    for kind in rng.sample(sorted(kinds), ERRANDS):
        atom = rng.choice(kinds[kind])
        if (slots := atom.draw(world, rng)) is None:
            return None
        with closing(world.fork()) as fork:
            ran = run(atom.steps(slots), fork, MAIN)
        made = changing(world.suite, ran)
        if ran.refused or len(made) != 1 or ran.calls[-1] != made[0]:
            return None
        if READS & {one.api for one in ran.calls}:
            return None
        goals.append(Goal(atom, slots, rng.randrange(len(atom.words))))
    return goals


class _Plan:
    """The times, mails and words of two twins, drawn once."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.me = my_address(world.state)
        self.contacts = rng.sample(named_contacts(world), ERRANDS)
        self.subjects = rng.sample(SUBJECTS, ERRANDS)
        self.answers = [rng.randrange(len(YES)) for _ in range(ERRANDS)]
        self.starts = sorted(rng.sample(range(2 * MINUTE, 40 * MINUTE), ERRANDS))
        self.gaps = [[rng.randint(30, 4 * MINUTE) for _ in range(2)] for _ in range(ERRANDS)]
        self.delays = [rng.randint(4 * MINUTE, 15 * MINUTE) for _ in range(ERRANDS)]
        self.noise = [
            *mails(world, self._named(), [At(rng.randint(0, 45 * MINUTE)) for _ in range(2)], rng),
            *(self._look(number) for number in range(2)),
        ]

    def stream(self, template: Template, goals: Sequence[Goal], wanted: Sequence[bool]) -> Stream:
        """Return the stream in which these errands are wanted."""
        errands = [Errand(n, goal, wanted[n]) for n, goal in enumerate(goals)]
        events = [event for errand in errands for event in self._events(errand)]
        suite, needed = self.world.suite, dict[str, None]()
        for errand in errands:
            atom, slots = errand.goal.atom, errand.goal.slots
            near = atom.near_misses(slots, self.world, random.Random(0))
            for way in (slots, *near):
                with closing(self.world.fork()) as fork:
                    needed |= dict.fromkeys(c.api for c in run(atom.steps(way), fork, MAIN).calls)
        return Stream(suite, template, (*events, *self.noise), tuple(errands), tuple(needed))

    def _named(self) -> Mapping[str, str]:
        """Return who writes the reminders, and so no other mail."""
        return {str(at): row["name"] for at, row in enumerate(self.contacts)}

    def _events(self, errand: Errand) -> Iterable[Event]:
        """Yield what happens for an errand, in order."""
        number, atom, slots = errand.number, errand.goal.atom, errand.goal.slots
        contact, subject = self.contacts[number], self.subjects[number]
        apis, first = self.world.suite.apis, self.starts[number]
        looks = first + self.gaps[number][0]
        answers = looks + self.gaps[number][1]
        body = f"You wanted me to remind you of this: {errand.goal.instruction}"
        said = (YES if errand.wanted else NO)[self.answers[number]]

        def remind(times: int) -> Deed:
            text = {"recipient": self.me, "subject": subject, "body": body}
            yield "mail.send_message", text

        def look(times: int) -> Deed:
            steps, sent = atom.steps(slots), None
            with suppress(IndexError, KeyError):  # what they look for is gone
                while not apis[(made := steps.send(sent)).api].changes:
                    sent = yield made.api, made.arguments

        def answer(times: int) -> Deed:
            found = yield "mail.search_messages", {"query": f"{subject} {contact['email']}"}
            yield "mail.reply_message", {"message_id": found["messages"][0]["id"], "body": said}

        def do(times: int) -> Deed:
            steps, sent = atom.steps(slots), None
            with suppress(StopIteration, IndexError, KeyError):
                while True:
                    made = steps.send(sent)
                    sent = yield made.api, made.arguments

        yield Event(errand.reminded, person_of(self.world, contact["email"]), At(first), remind)
        yield Event(f"look {number}", MAIN, At(looks), look)
        yield Event(errand.decided, MAIN, At(answers), answer)
        if errand.wanted:
            yield Event(errand.done, MAIN, At(answers + self.delays[number]), do)

    def _look(self, number: int) -> Event:
        """Return an event in which the person looks at a list that has to do with no errand."""
        apis = self.world.suite.apis.values()
        lists = [a.full_name for a in apis if a.name.startswith("list_") and a.app != CLOCK]
        chosen = self.rng.choice(sorted(lists))

        def look(times: int) -> Deed:
            yield chosen, {}

        return Event(f"glance {number}", MAIN, At(self.rng.randint(0, 45 * MINUTE)), look)
