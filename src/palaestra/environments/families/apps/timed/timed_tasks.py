"""The tasks of `apps/timed`: one goal in which time matters, and in half of them distraction.

Goals of `apps/timed-challenge` concern apps about which no task of `apps/timed` asks, such as notes
and the shop; those of `apps/timed-new` apps that are generated for the task.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.apps.app import Suite
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.crud_atoms import crud_atoms
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal, Slots
from palaestra.environments.families.apps.composing.stock_atoms import named_contacts
from palaestra.environments.families.apps.drawing import NEW, TRIES, WORLDS, Drawn, new_apps
from palaestra.environments.families.apps.events import Deed, Event, Every, Poisson, Timing
from palaestra.environments.families.apps.names import ADJECTIVES, NOUNS, TOPICS
from palaestra.environments.families.apps.population import START, populate, world_template
from palaestra.environments.families.apps.setting import life
from palaestra.environments.families.apps.state import Row, Template
from palaestra.environments.families.apps.stock import CORE, stock_app, stock_suite
from palaestra.environments.families.apps.timed.clock_app import slow_suite, timed_suite
from palaestra.environments.families.apps.timed.timed_atoms import TIMED, my_address
from palaestra.environments.families.apps.timed.timed_operators import IN_TIME
from palaestra.environments.families.apps.world import World

TIMED_ATOMS = tuple(kind() for kind in TIMED)
NOISY = 0.5  # of the tasks
MAILS = 8  # an hour, on average, of somebody who has nothing to do with the task
PERIOD = (300, 900)  # seconds between the mails of somebody else, who writes at regular times


@cache
def challenge_suite() -> Suite:
    """Return the apps of `apps/timed-challenge`."""
    return slow_suite(life().suite.apps.values())


@lru_cache(maxsize=512)
def drawn_timed(seed: int, kind: str = "") -> Drawn:
    """Draw the task of a seed, which says its split as in `drawn`; `kind` is a suffix, or empty."""
    rng = random.Random(f"apps timed {kind} {seed}" if kind else f"apps timed {seed}")
    suite, template, atoms = _apps_of(seed, kind)
    untouched, atom = World(suite, template, START), rng.choice(atoms)
    for _ in range(TRIES):
        if kind:  # a world may lack what a goal needs
            atom = rng.choice(atoms)
        if (task := draw_task(atom, untouched, rng)) is None:
            continue
        events = task.events(untouched)
        world = World(suite, template, START, events, MAIN)
        if rejection(world, task, rng) is not None:
            continue
        ran, _ = task.reference(world)
        needed = tuple(dict.fromkeys(call.api for call in ran.calls))
        return Drawn(suite, template, task, task.ways(world), needed, events)
    raise EnvironmentFault("reset", f"no task of 'timed' passed the gate for the seed {seed}")


def _apps_of(seed: int, kind: str) -> tuple[Suite, Template, Sequence[Atom]]:
    """Return the apps of a task, a world of its split, and the goals that it may have."""
    number, split = divmod(seed, len(Split))
    where = len(Split) * (number % WORLDS) + split
    if not kind:
        return timed_suite(), world_template(stock_suite(), "small", where), TIMED_ATOMS
    if kind == NEW:
        known = [stock_app(name) for name in ("contacts", "mail", "supervisor")]
        new = new_apps(seed)
        suite, unseen = Suite.of([*known, *new]), {app.name for app in new}
        template = populate(suite, "small", seed)
        made: tuple[Atom, ...] = tuple(crud_atoms(suite, ids=False))
        slow = slow_suite(suite.apps.values())
    else:
        suite, made, unseen = life().suite, life().atoms, {*life().suite.apps} - {*CORE}
        slow, template = challenge_suite(), world_template(suite, "small", where)
    goals: dict[str, list[Atom]] = {}
    for atom in made:
        if not atom.answers and atom.apps & unseen:
            goals.setdefault(atom.name, []).append(atom)
    # As many of each kind of goal, however many entities it is for.
    most = max(map(len, goals.values()))
    each = [own[n % len(own)] for own in goals.values() for n in range(most)]
    return slow, template, [operator(atom) for operator in IN_TIME for atom in each]


def draw_task(atom: Atom, world: World, rng: random.Random) -> Composition | None:
    """Draw a task of a kind; None if this draw gave none. It has not passed the gate."""
    slots = atom.draw(world, rng)
    if slots is None:
        return None
    goal = Goal(atom, slots, rng.randrange(len(atom.words)))
    noise: Sequence[Event] = ()
    if rng.random() < NOISY:
        period = rng.randint(*PERIOD)
        timings = (Poisson(MAILS, rng.getrandbits(32)), Every(rng.randrange(period), period))
        noise = mails(world, slots, timings, rng)
    return Composition((goal,), tuple(noise))


def mails(world: World, slots: Slots, timings: Sequence[Timing], rng: random.Random) -> list[Event]:
    """Return mails of contacts whom a task does not name, one for each timing."""
    named = set(map(str, slots.values()))
    contacts = [row for row in named_contacts(world) if row["name"] not in named]
    events: list[Event] = []
    number = min(len(timings), len(contacts))
    for contact, timing in zip(rng.sample(contacts, number), timings, strict=False):
        sender = world.state.find("supervisor.person", email=contact["email"])[0]
        events.append(
            _mails(f"noise{len(events)}", sender, contact["relation"], timing, world, rng)
        )
    return events


def _mails(
    name: str,
    sender: Row,
    relation: str,
    timing: Timing,
    world: World,
    rng: random.Random,
) -> Event:
    """Return an event that writes a mail each time, about something else."""
    seed, to = rng.getrandbits(32), my_address(world.state)
    signed = sender["name"].partition(" ")[0]

    def write(times: int) -> Deed:
        drawn = random.Random(f"mail {seed} {times}")
        subject, body, _ = drawn.choice(TOPICS[relation])
        thing = f"{drawn.choice(ADJECTIVES)} {drawn.choice(NOUNS)}"
        words = {"thing": thing, "Thing": thing.title()}
        text = {"subject": subject.format(**words), "body": f"{body.format(**words)} {signed}"}
        yield "mail.send_message", {"recipient": to, **text}

    return Event(name, sender["id"], timing, write)
