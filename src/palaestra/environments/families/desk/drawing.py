"""The tasks of a desk, drawn from seeds. Neighbours are pairs, and some pairs are twins.

Twins have the same user, words and world but for the one row on which the policy depends: it
permits what one of them asks and forbids what the other asks, or wants that handed over. Which of
the two comes first is drawn, too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from palaestra.core.errors import EnvironmentFault
from palaestra.core.task import Split
from palaestra.environments.families.apps.compiler.blueprint import columns
from palaestra.environments.families.apps.composing.gate import judged
from palaestra.environments.families.apps.composing.verifier import Judge, Ran, Wanted
from palaestra.environments.families.apps.people import Person, draw_people
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.state import State, Template
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.desk.desks.hotel import HOTEL
from palaestra.environments.families.desk.desks.orders import ORDERS
from palaestra.environments.families.desk.desks.services import SERVICES
from palaestra.environments.families.desk.desks.support import SUPPORT
from palaestra.environments.families.desk.desks.telephone import TELEPHONE
from palaestra.environments.families.desk.scenario import (
    Draft,
    Kind,
    Scenario,
    ServiceDesk,
)

DESKS: dict[str, ServiceDesk] = {
    desk.name: desk for desk in (ORDERS, TELEPHONE, HOTEL, SERVICES, SUPPORT)
}
PEOPLE = 9  # of a world: one at the desk, the others customers


@dataclass(frozen=True)
class Drawn:
    """A task that was drawn, with what every episode of it needs."""

    desk: ServiceDesk
    template: Template
    kind: Kind
    permitted: bool  # of twins
    scenario: Scenario
    wanted: Wanted
    wording: int  # the seed of what the user says

    def open(self) -> World:
        """Return its world, in which nothing has happened."""
        return World(self.desk.suite, self.template, START)


@lru_cache(maxsize=512)
def drawn(name: str, seed: int) -> Drawn:
    """Draw the task of a seed at the desk of that name.

    Raises:
        EnvironmentFault: the task does not pass the gate: its reference is refused, or a task that
            wants a change is solved without one. No seed is known for which that is so.
    """
    desk = DESKS[name]
    number, split = divmod(seed, len(Split))
    pair, second = divmod(number, 2)
    kind = desk.kinds[pair % len(desk.kinds)]
    mark = f"pair {pair}" if kind.twin else f"task {number}"
    rng = random.Random(f"desk {name} {split} {mark}")
    permitted = not kind.twin or (rng.random() < 0.5) != bool(second)
    state = State(desk.suite.empty())
    people = draw_people(rng, PEOPLE)
    _insert_people(state, people)
    desk.populate(state, people, rng)
    scenario = kind.draw(Draft(state, people, rng, permitted))
    wording = rng.getrandbits(32)
    template = state.template()
    state.close()
    world = World(desk.suite, template, START)
    wanted = _wanted(desk, scenario, world)
    if wanted.rows or wanted.answer is not None:
        if judged(world, [wanted], "").success:
            raise EnvironmentFault("reset", f"nothing is to be done for '{kind.name}' ({seed})")
    elif not any(wish.refused for wish in scenario.final):
        raise EnvironmentFault("reset", f"'{kind.name}' wants nothing ({seed})")
    world.close()
    return Drawn(desk, template, kind, permitted, scenario, wanted, wording)


def _wanted(desk: ServiceDesk, scenario: Scenario, world: World) -> Wanted:
    """Return what the reference leaves behind; raise EnvironmentFault if it is refused."""
    fork, made = world.fork(), [made for wish in scenario.final for made in wish.calls]
    for one in made:
        reply = fork.call(one.api, one.arguments, desk.caller(scenario, one.api))
        if not reply.ok:
            raise EnvironmentFault("reset", f"the reference is refused: {one.api}: {reply}")
    changes = fork.state.changes()
    fork.close()
    return Judge(columns(desk.suite.blueprints)).wanted(changes, Ran(made, scenario.answer), ())


def _insert_people(state: State, people: Sequence[Person]) -> None:
    for person in people:
        row = {"owner": person.id, "name": person.name, "email": person.email}
        row |= {"phone": person.phone, "birthday": person.birthday, "address": person.address}
        state.insert("supervisor.person", row)
