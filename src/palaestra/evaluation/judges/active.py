"""The active judge: it acts in the still-open world before it judges.

After an episode, the world is put back where the agent left it (by replay, or by a snapshot),
probes are done there, and what they show is laid before an inner judge beside the record. A
claim can thus be checked instead of believed. Source: ProRe (2025, a proactive reward system), in
which a reasoner plans the probes and evaluators do them.

Probes must only look: each is done in a world of its own, and one that changes the state (where
the world tells its state) shows nothing, for it could do the task itself. Where the last action
ended the world, the probes look at the state before it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Capability, Environment, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import (
    ContextTooLong,
    EnvironmentFault,
    InfrastructureFault,
    InputError,
)
from palaestra.core.message import system, user
from palaestra.core.model import Model, Sampling
from palaestra.evaluation.attribution.replay import Replay, Worlds
from palaestra.evaluation.judges.case import Case, Evidence, told
from palaestra.evaluation.judges.model_judge import LONGEST, asked
from palaestra.evaluation.judges.verdict import Choice, Cost, Judge, Preference, Verdict

PLAN = (
    "An agent says that it has worked on a task. You may look at the world before you judge it. "
    "Say up to {most} actions that only look and change nothing, one per line, and nothing else."
)

_UNPROBED = (InputError, EnvironmentFault, InfrastructureFault, ContextTooLong)


class Prober(ABC):
    """Says what to look at."""

    rule: str

    @abstractmethod
    async def plan(self, case: Case, world: Environment) -> tuple[list[str], Cost]:
        """The probes, as an agent would say them."""


class FixedProbes(Prober):
    """The same probes in each world."""

    def __init__(self, probes: Sequence[str]) -> None:
        self.rule, self._probes = "probes: " + "; ".join(probes), list(probes)

    async def plan(self, case: Case, world: Environment) -> tuple[list[str], Cost]:
        return self._probes, Cost()


class PlannedProbes(Prober):
    """A model plans the probes from the record and the world's instructions."""

    def __init__(self, model: Model, most: int = 4) -> None:
        self.rule, self._model, self._most = f"probes by {model.name}, {most}", model, most

    async def plan(self, case: Case, world: Environment) -> tuple[list[str], Cost]:
        told_so = system(PLAN.format(most=self._most))
        question = user(f"{world.instructions}\n\n{told(case, LONGEST)}")
        reply, cost = await asked(self._model, [told_so, question], Sampling(0.0, 96))
        lines = [line.strip(" -*`") for line in reply.text.splitlines()]
        return [line for line in lines if line][: self._most], cost


class ActiveJudge(Judge):
    """Probes the finished world, then lets an inner judge decide."""

    def __init__(self, inner: Judge, prober: Prober, worlds: Worlds) -> None:
        self.inner, self._prober, self._worlds = inner, prober, worlds
        self.name = f"active:{inner.name}"
        self._gathered: dict[Key, tuple[Episode, tuple[Evidence, ...]]] = {}

    @property
    def rule(self) -> str:
        return f"{self._prober.rule}\n{self.inner.rule}"

    async def judge(self, case: Case) -> Verdict:
        """The inner judge's verdict with evidence; no verdict where nothing can be gathered."""
        try:
            evidence, cost = await self._evidence(case)
        except _UNPROBED as why:
            return self.verdict(None, f"the world could not be probed: {why}")
        found = await self.inner.judge(replace(case, evidence=evidence))
        return Verdict(
            self.name,
            self.identity,
            found.value,
            found.reason,
            found.cost + cost,
            tuple(f"{one.probe}: {one.seen}" for one in evidence),
        )

    async def prefer(self, a: Case, b: Case) -> Preference:
        """The inner judge's choice, each case with its evidence."""
        try:
            (of_a, cost_a), (of_b, cost_b) = await self._evidence(a), await self._evidence(b)
        except _UNPROBED:
            return Preference(Choice.NONE)
        found = await self.inner.prefer(replace(a, evidence=of_a), replace(b, evidence=of_b))
        return replace(found, cost=found.cost + cost_a + cost_b)

    async def _evidence(self, case: Case) -> tuple[tuple[Evidence, ...], Cost]:
        """What the probes show; gathered once per episode."""
        known = self._gathered.get(case.episode.key)
        if known is not None and known[0] is case.episode:
            return known[1], Cost()
        started = time.monotonic()
        with Replay.of(case.episode, self._worlds) as replay:
            turn = last_open(replay)
            probes, cost = await self._prober.plan(case, replay.at(turn))
            shown = gather(lambda: replay.at(turn), probes, replay.act)
            spent = Cost(actions=replay.actions, seconds=time.monotonic() - started)
        self._gathered[case.episode.key] = case.episode, shown
        return shown, cost + replace(spent, seconds=spent.seconds - cost.seconds)


def last_open(replay: Replay) -> int:
    """The last turn before which the world still took actions."""
    steps = replay.episode.steps
    ended = bool(steps) and (steps[-1].transition.terminated or steps[-1].transition.truncated)
    return len(steps) - ended


def gather(
    state: Callable[[], Environment],
    probes: Sequence[str],
    act: Callable[[Action], Transition] | None = None,
) -> tuple[Evidence, ...]:
    """What each probe shows; those that are not understood, or change the state, show nothing.

    Args:
        state: the world, put into the state to look at; called once per probe.
        probes: actions that only look.
        act: does an action; by default the world's own `step`.
    """
    shown: list[Evidence] = []
    for probe in probes:
        world = state()
        tells = Capability.STATE_KEY in world.capabilities
        before = world.state_key() if tells else ""
        transition = act(Action(probe)) if act else world.step(Action(probe))
        changed = world.state_key() != before if tells else None
        if transition.valid and not changed:
            shown.append(Evidence(probe, transition.observation.text, changed))
    return tuple(shown)
