"""Goals at a time: any goal of any app, to be done in a window of time.

`at_time`      at a time: not before, at most ten minutes later
`before_time`  before a time
`when_told`    when a mail arrives, within some minutes

The kinds of `timed_atoms.py` are about mail, bank and calendar. These take goals of apps about
which no task of `apps/timed` asks.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Goal,
    Slots,
    Steps,
    call,
)
from palaestra.environments.families.apps.composing.stock_atoms import named_contacts
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.composing.windows import Window
from palaestra.environments.families.apps.events import At, Deed, Event
from palaestra.environments.families.apps.timed.timed_atoms import (
    PUNCTUAL,
    idle,
    later,
    mails_about,
    minutes_between,
    my_address,
    person_of,
)
from palaestra.environments.families.apps.world import MINUTE, World

LATEST = (8, 20)  # minutes from the beginning to a time before which something is to be done


@dataclass(frozen=True, slots=True)
class InTime(Atom):
    """A goal in a window.

    The slots hold the goal (`goal`) and the apps that it changes (`changed`).
    `idle`: minutes that pass before it is done, in near misses.
    """

    deed: Atom
    words: ClassVar[tuple[str, ...]] = ("{text}",)
    clauses: ClassVar[tuple[str, ...]]  # words around those of the goal

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | {"clock"}

    @abstractmethod
    def when(self, world: World, rng: random.Random) -> Slots | None:
        """Draw the window; None if this world has none."""

    @abstractmethod
    def too_early_or_late(self, slots: Slots) -> Sequence[Slots]:
        """Return slots whose reference is not in time."""

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        drawn, when = self.deed.draw(world, rng), self.when(world, rng)
        if drawn is None or when is None:
            return None
        goal = Goal(self.deed, drawn, rng.randrange(len(self.deed.words)))
        fork = world.fork()
        run(self.deed.steps(drawn), fork, MAIN)
        changed = sorted({one.api.partition(".")[0] for one in fork.changing_calls()})
        fork.close()
        text = rng.choice(self.clauses).format(goal=goal.instruction, **when)
        return {"goal": goal, "changed": tuple(changed), "text": text, **when}

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return tuple(self.deed.mentions(slots["goal"].slots))

    def alternatives(self, slots: Slots, world: World) -> Sequence[Slots]:
        goal = slots["goal"]
        others = self.deed.alternatives(goal.slots, world)
        return [{**slots, "goal": replace(goal, slots=other)} for other in others]

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        goal = slots["goal"]
        misses = self.deed.near_misses(goal.slots, world, rng)
        others = [{**slots, "goal": replace(goal, slots=other)} for other in misses]
        return [*self.too_early_or_late(slots), *others]

    def _done(self, slots: Slots) -> Steps:
        yield from idle(slots)
        yield from self.deed.steps(slots["goal"].slots)


class AtTime(InTime):
    name = "at_time"
    clauses = (
        "At {clock}, do this: {goal} Not before; up to ten minutes later is fine.",
        "Between {clock} and ten minutes later, do the following. {goal}",
    )

    def when(self, world: World, rng: random.Random) -> Slots | None:
        minutes = 5 * rng.randint(3, 12)
        time = later(world.start, minutes)
        return {"second": MINUTE * minutes, "time": time, "clock": time[11:]}

    def windows(self, slots: Slots) -> Sequence[Window]:
        first = slots["second"]
        return [Window(app, first, first + PUNCTUAL * MINUTE) for app in slots["changed"]]

    def steps(self, slots: Slots) -> Steps:
        known = yield call("clock.now")
        minutes = minutes_between(known["now"], slots["time"])
        if minutes > 0:
            yield call("clock.wait", minutes=minutes)
        yield from self._done(slots)

    def too_early_or_late(self, slots: Slots) -> Sequence[Slots]:
        return [{**slots, "time": later(slots["time"], by)} for by in (-12, PUNCTUAL + 2)]


class BeforeTime(InTime):
    name = "before_time"
    clauses = (
        "Before {clock}, do this: {goal}",
        "This must be done by {clock}, and no later. {goal}",
    )

    def when(self, world: World, rng: random.Random) -> Slots | None:
        minutes = rng.randint(*LATEST)
        return {"minutes": minutes, "clock": later(world.start, minutes)[11:]}

    def windows(self, slots: Slots) -> Sequence[Window]:
        latest = MINUTE * slots["minutes"] - 1
        return [Window(app, latest=latest) for app in slots["changed"]]

    def steps(self, slots: Slots) -> Steps:
        yield from self._done(slots)

    def too_early_or_late(self, slots: Slots) -> Sequence[Slots]:
        return [{**slots, "idle": slots["minutes"]}]


class WhenTold(InTime):
    name = "when_told"
    clauses = (
        "{name} will write to me about '{subject}'. When the mail is there, do this within "
        "{minutes} minutes: {goal}",
        "Wait for the mail of {name} about '{subject}'. At most {minutes} minutes after it, and "
        "not before it, do the following. {goal}",
    )

    @property
    def apps(self) -> frozenset[str]:
        return self.deed.apps | {"clock", "mail", "contacts"}

    def when(self, world: World, rng: random.Random) -> Slots | None:
        contacts = named_contacts(world)
        if not contacts:
            return None
        contact = rng.choice(contacts)
        return {
            "name": contact["name"],
            "person": person_of(world, contact["email"]),
            "subject": " ".join(rng.sample(WORDS, 2)).capitalize(),
            "second": MINUTE * rng.randint(5, 45) + rng.randrange(MINUTE),
            "minutes": rng.choice((5, 8, 10)),
        }

    def events(self, slots: Slots, world: World) -> Sequence[Event]:
        to = my_address(world.state)

        def tell(times: int) -> Deed:
            text = {"subject": slots["subject"], "body": "It is time now."}
            yield call("mail.send_message", recipient=to, **text)

        return (Event("told", slots["person"], At(slots["second"]), tell),)

    def windows(self, slots: Slots) -> Sequence[Window]:
        latest = MINUTE * slots["minutes"]
        return [Window(app, latest=latest, since="told") for app in slots["changed"]]

    def steps(self, slots: Slots) -> Steps:
        if not slots.get("early"):
            yield from mails_about(slots["subject"], 1)
        yield from self._done(slots)

    def too_early_or_late(self, slots: Slots) -> Sequence[Slots]:
        return [{**slots, "early": True}, {**slots, "idle": slots["minutes"] + 1}]


IN_TIME: tuple[type[InTime], ...] = (AtTime, BeforeTime, WhenTold)
