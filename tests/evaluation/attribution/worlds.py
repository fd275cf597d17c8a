"""A world of tools in which faults cannot be undone, for the tests of attribution and judges.

A customer's parcel is to be sent once, to the right shelf: looking up and reading changes
nothing, and the first `send` decides. `store` sends nothing by itself, and `finish` claims.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Capability, Environment, Spec
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.rare_capabilities import signals_of
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.authoring import Refused, ToolWorld, tool

NAMES = ("Ada", "Ben", "Cleo", "Dora")


class Parcels(ToolWorld, capabilities={"oracle"}):
    """Send the parcel of the customer. Look the customer up, read the number, send it once."""

    def begin(self, task: Task) -> str:
        rng = random.Random(task.seed)
        numbers = rng.sample(range(100, 999), len(NAMES))
        self.state = {
            "customer": rng.choice(NAMES),
            "customers": dict(zip(NAMES, (f"c-{n}" for n in numbers), strict=True)),
            "parcels": {f"c-{n}": f"p-{n + 1000}" for n in numbers},
            "looked": False,
            "read": False,
            "sent": None,
            "claimed": False,
        }
        return f"Send the parcel of {self.state['customer']}."

    @tool
    def lookup(self, person: str) -> str:
        """Give the customer's number."""
        found = self.state["customers"].get(person)
        if found is None:
            raise Refused(f"There is no customer {person}.")
        self.state["looked"] |= person == self.state["customer"]
        return f"customer {found}"

    @tool
    def parcel(self, customer: str) -> str:
        """Give the parcel of a customer's number."""
        found = self.state["parcels"].get(customer)
        if found is None:
            raise Refused("No such number.")
        self.state["read"] |= found == self._right()
        return f"parcel {found}"

    @tool
    def send(self, parcel: str) -> str:
        """Send a parcel; it cannot be called back."""
        if self.state["sent"] is not None:
            raise Refused("One parcel has been sent already.")
        self.state["sent"] = parcel
        return "It is on its way."

    @tool
    def status(self) -> str:
        """Tell what was sent."""
        sent = self.state["sent"]
        return f"sent {sent} for {self._owner(sent)}" if sent else "nothing was sent"

    @tool
    def finish(self) -> str:
        """Say that the task is done."""
        self.state["claimed"] = True
        return "Task completed successfully."

    def verdict(self) -> bool | None:
        return self._right() == self.state["sent"] if self.state["claimed"] else None

    def oracle(self) -> Sequence[Action]:
        customer = self.state["customer"]
        if self.state["claimed"]:
            return []
        if self.state["sent"] is not None:
            return [self.call("finish")]
        number = self.state["customers"][customer]
        look = [] if self.state["looked"] else [self.call("lookup", person=customer)]
        read = [] if self.state["read"] else [self.call("parcel", customer=number)]
        return [*look, *read, self.call("send", parcel=self._right()), self.call("finish")]

    def _right(self) -> str:
        return str(self.state["parcels"][self.state["customers"][self.state["customer"]]])

    def _owner(self, parcel: str) -> str:
        owners = {p: c for c, p in self.state["parcels"].items()}
        numbers = {n: name for name, n in self.state["customers"].items()}
        return numbers.get(owners.get(parcel, ""), "nobody")


class Shapeless(Parcels):
    """The same without snapshots."""

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        return replace(spec, capabilities=spec.capabilities - {Capability.SNAPSHOT})


class Lottery(Shapeless, deterministic=False):
    """The same, and it says that it never repeats itself."""


def worlds(environment: str) -> Environment:
    """The world whose class has that name."""
    return {"parcels": Parcels, "shapeless": Shapeless, "lottery": Lottery}[environment]()


def roll_out(
    actions: Sequence[str],
    *,
    seed: int = 0,
    environment: str = "parcels",
    limit: int = 20,
    group: int = 0,
) -> Episode:
    """The episode of these actions; `{customer}`, `{number}` and `{parcel}` are the right ones."""
    world = worlds(environment)
    task = TaskSet(environment).task(Split.TRAIN, seed)
    first = world.reset(task)
    assert isinstance(world, Parcels)
    names = world.state["customer"], world.state["customers"], world.state["parcels"]
    right = {"customer": names[0], "number": names[1][names[0]]}
    right["parcel"] = names[2][right["number"]]
    outcome, steps = Outcome.truncated(Limit.TURNS), list[Step]()
    if len(actions) < limit:
        outcome = Outcome.failure()  # the agent gives up
    for index, action in enumerate(actions):
        before = signals_of(world)
        done = Action(action.format(**right))
        transition = world.step(done)
        steps.append(Step(index, None, done, transition, before))
        if transition.terminated:
            outcome = Outcome.success() if transition.success else Outcome.failure()
            break
    usage = Usage(turns=len(steps))
    return Episode(Key("made", group), task, "made", first, (), tuple(steps), outcome, usage)


LOOKUP, PARCEL, SEND = "lookup('{customer}')", "parcel('{number}')", "send('{parcel}')"
RIGHT = (LOOKUP, PARCEL, SEND, "finish()")
