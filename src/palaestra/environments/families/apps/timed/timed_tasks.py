"""The tasks of `apps/timed`: one goal in which time matters, and in half of them distraction."""

from __future__ import annotations

import random
from functools import lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Atom, Goal, Slots
from palaestra.environments.families.apps.composing.stock_atoms import named_contacts
from palaestra.environments.families.apps.drawing import TRIES, WORLDS, Drawn
from palaestra.environments.families.apps.events import Deed, Event, Every, Poisson, Timing
from palaestra.environments.families.apps.names import ADJECTIVES, NOUNS, TOPICS
from palaestra.environments.families.apps.population import START, world_template
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.apps.stock import stock_suite
from palaestra.environments.families.apps.timed.clock_app import timed_suite
from palaestra.environments.families.apps.timed.timed_atoms import TIMED, my_address
from palaestra.environments.families.apps.world import World

NOISY = 0.5  # of the tasks
MAILS = 8  # an hour, on average, of somebody who has nothing to do with the task
PERIOD = (300, 900)  # seconds between the mails of somebody else, who writes at regular times


@lru_cache(maxsize=512)
def drawn_timed(seed: int) -> Drawn:
    """Draw the task of a seed, which says its split as in `drawn`."""
    number, split = divmod(seed, len(Split))
    suite = timed_suite()
    template = world_template(stock_suite(), "small", len(Split) * (number % WORLDS) + split)
    rng = random.Random(f"apps timed {seed}")
    untouched, atom = World(suite, template, START), rng.choice(TIMED)()
    for _ in range(TRIES):
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


def draw_task(atom: Atom, world: World, rng: random.Random) -> Composition | None:
    """Draw a task of a kind; None if this draw gave none. It has not passed the gate."""
    slots = atom.draw(world, rng)
    if slots is None:
        return None
    goal = Goal(atom, slots, rng.randrange(len(atom.words)))
    noise = mails(world, slots, rng) if rng.random() < NOISY else ()
    return Composition((goal,), tuple(noise))


def mails(world: World, slots: Slots, rng: random.Random) -> list[Event]:
    """Return mails of two contacts whom a task does not name, at random and at regular moments."""
    named = set(map(str, slots.values()))
    contacts = [row for row in named_contacts(world) if row["name"] not in named]
    period = rng.randint(*PERIOD)
    timings = (Poisson(MAILS, rng.getrandbits(32)), Every(rng.randrange(period), period))
    events: list[Event] = []
    for contact, timing in zip(rng.sample(contacts, min(2, len(contacts))), timings, strict=False):
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
