"""Proactive help: an agent sees a person's activity, and each time offers help or stays silent.

Ids: `proactive/core`, `proactive/life`: a stream of activity of a person who has the apps of that
setting (`apps/setting.py`). Each observation has what happened since the last one. A call that
changes something is an offer: the person accepts it if they are going to do just that, and then it
is made; otherwise they decline, and nothing changes. Reading is free but takes time, in which the
person may do it themselves. `stay_silent` lets time pass until something happens. Success is every
errand that the person wants accepted in time, and no offer declined.

With `:moment` the stream has run, without help, until the person has answered the first of its
reminders, and one decision ends the task: an offer that is accepted, or silence where no help is
wanted, is right. So an episode's success is the label "accept" or "reject" of one candidate, the
empty one included, and a reward model that predicts success stands in for the person.

Tasks 2k and 2k + 1 are twins, see `activity.py`. After Proactive Agent (Lu et al. 2024); ours: the
activity, which runs on a simulated clock in real apps, and the labels, which are derived.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.core.tool import NotACall, Tool, checked, parse_call
from palaestra.environments.base import (
    Replayed,
    hashed,
    plan_in_copy,
    refused,
    without_parameters,
)
from palaestra.environments.families.apps.composing.goal import MAIN, Call
from palaestra.environments.families.apps.surfaces import SURFACES, tool_name
from palaestra.environments.families.apps.timed.clock_app import CLOCK
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.proactive.activity import APPS, Errand, stream, suite_of

MOMENT = "moment"
SILENCE = Tool(
    "stay_silent",
    "Offer nothing now; let time pass until something happens.",
    {"type": "object", "properties": {}},
)
RULES = (
    "You watch what a person does with their apps. Reply with one tool call. A call that changes "
    "something is an offer to do that for them: they accept it if they are about to do just that, "
    "and decline it otherwise. Offer only what is wanted. Reading is free, but takes time. If "
    "there is nothing to offer, call stay_silent()."
)
ONCE = " You have one decision: one offer, or silence."
DECLINED = "Declined."


class Proactive(
    Replayed, id="proactive", capabilities={"state_key", "snapshot", "oracle", "progress"}
):
    """A person's activity, and what to offer them."""

    OVER = "The day is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._setting, _, form = name.partition(":")
        self._once = form == MOMENT
        apis = [api for api in suite_of(self._setting).apis.values() if api.app != CLOCK]
        self._surface = SURFACES["task"]
        self._api_of = {tool_name(api.full_name): api for api in apis}
        self.tools = (SILENCE,)
        self._world: World | None = None

    @classmethod
    def names(cls) -> list[str]:
        return [f"{name}{form}" for name in APPS for form in ("", f":{MOMENT}")]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        turns = 4 if name.endswith(MOMENT) else 30
        return replace(super().spec_of(name), tools=True, typical_turns=turns)

    @property
    def instructions(self) -> str:
        return RULES + (ONCE if self._once else "")

    @property
    def errands(self) -> tuple[Errand, ...]:
        """What the person is reminded of, and whether they want it; no agent sees it."""
        self._current()
        return self._stream.errands

    @property
    def world(self) -> World:
        """The apps and what is going to happen in them; no agent sees it."""
        self._current()
        assert self._world is not None
        return self._world

    def _begin(self, task: Task) -> Observation:
        """Open the world, and let the first things happen; raises InputError for parameters."""
        without_parameters(task)
        self.close()
        self._stream = stream(self._setting, task.seed)
        self._world = self._stream.open()
        self._world.witnessed = []
        self._accepted, self._declined = 0, 0
        self._right = False  # how the task has ended
        number, split = divmod(task.seed, len(Split))
        rng = random.Random(f"tools {split} {number // 2}")  # the same for both twins
        offered = self._surface.tools(self._world.suite, self._stream.needed, rng)
        self.tools = (*(tool for tool in offered if tool.name in self._api_of), SILENCE)
        seen = self._until_decided() if self._once else self._go_on()
        return Observation(f"{self._briefing()}\n{seen}")

    def _act(self, action: Action) -> Transition:
        try:
            call = action.call
            call = (
                parse_call(action.text, self.tools) if call is None else checked(call, self.tools)
            )
        except NotACall as error:
            return refused(str(error))
        world = self.world
        api = self._api_of.get(call.name)
        if api is not None and not api.changes:
            reply = world.call(api.full_name, call.arguments, MAIN)
            return Transition(Observation(f"{reply}{self._activity()}"))
        info: dict[str, Any] = {"wanted": self._wanted() is not None}
        if api is None:
            right, seen = not info["wanted"], self._go_on()
        else:
            right, seen = self._offer(Call(api.full_name, call.arguments))
            info["offer"] = "accepted" if right else "declined"
        if self._once:
            return self._end(right, seen, info)
        if seen:
            return Transition(Observation(seen), info=info)
        return self._end(self._done(), self.OVER, info)

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = None

    def state_key(self) -> str:
        world = self.world
        counts = (self._accepted, self._declined)
        return hashed(self._current().seed, world.key(), self._over, counts)

    def progress(self) -> float:
        """Return the share of the wanted errands that was accepted, less declined offers."""
        if self._once:
            return float(self._right)
        wanted = sum(errand.wanted for errand in self.errands)
        return max(0.0, (self._accepted + self._right - self._declined) / (wanted + 1))

    def oracle(self) -> list[Action]:
        """Return an offer wherever one is wanted, else silence; empty if an error was made."""
        self._current()
        return [] if self._over else plan_in_copy(self, Proactive.next_action)

    def next_action(self) -> Action:
        """Return the offer that is wanted now, else silence."""
        errand, world = self._wanted(), self.world
        offer = None if errand is None else errand.offer(world)
        name, given = SILENCE.name, dict[str, Any]()
        if offer is not None:
            name, given = tool_name(offer.api), dict(offer.arguments)
        call = ToolCall(name, given)
        return Action(str(call), call)

    # ── details ──────────────────────────────────────────────────────────────

    def _wanted(self) -> Errand | None:
        """Return an errand for which an offer would be accepted now; None if there is none."""
        world = self.world
        return next((errand for errand in self.errands if errand.is_open(world)), None)

    def _done(self) -> bool:
        """Return whether every wanted errand was accepted, and no offer declined."""
        wanted = sum(errand.wanted for errand in self.errands)
        return self._accepted == wanted and not self._declined

    def _offer(self, call: Call) -> tuple[bool, str]:
        """Make an offer; return whether it was accepted, and what is seen."""
        world = self.world
        for errand in self.errands:
            if errand.is_open(world) and errand.is_done_by(world, call):
                self._accepted += 1
                world.schedule.cancel(errand.done)
                reply = world.call(call.api, call.arguments, MAIN)
                return True, f"Accepted: {reply}{self._activity()}"
        self._declined += 1
        return False, DECLINED

    def _go_on(self) -> str:
        """Let time pass until something is seen; return it; empty: nothing happens any more."""
        world = self.world
        while (due := world.schedule.next_second()) is not None:
            world.advance(due - world.seconds)
            if seen := self._activity():
                return seen.strip()
        return ""

    def _until_decided(self) -> str:
        """Let time pass until the person has answered a reminder; return all that is seen."""
        seen, schedule = list[str](), self.world.schedule
        while not any(schedule.of(errand.decided).times for errand in self.errands):
            seen.append(self._go_on())
        return "\n".join(seen)

    def _activity(self) -> str:
        """Return what was done since it was last asked, in lines, each after a line break."""
        world, lines = self.world, []
        for who, made in world.witnessed or ():
            person = world.state.get("supervisor.person", who) or {}
            given = ", ".join(f"{name}={value!r}" for name, value in made.arguments.items())
            at = f"{world.time_of(made.second)[11:]}"
            lines.append(f"\n[{at}] {person.get('name')}: {made.api}({given})")
        world.witnessed = []
        return "".join(lines)

    def _end(self, success: bool, seen: str, info: Mapping[str, Any]) -> Transition:
        self._right = success
        missed = sum(
            errand.wanted and bool(self.world.schedule.seconds_of(errand.done))
            for errand in self.errands
        )
        counts = {"accepted": self._accepted, "declined": self._declined, "missed": missed}
        changed = [f"{c.kind} {c.table} {c.id}" for c in self.world.state.changes()]
        return Transition(
            Observation(seen or self.OVER),
            reward=float(success),
            terminated=True,
            success=success,
            info={**info, **counts, "rows": changed},
        )

    def _briefing(self) -> str:
        world = self.world
        person = world.state.get("supervisor.person", MAIN) or {}
        listed = "\n".join(tool.signature for tool in self.tools)
        return f"The person is {person.get('name')}. It is {world.now}.\nTools:\n{listed}"
