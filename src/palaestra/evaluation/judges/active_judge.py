"""The active judge: it probes the environment's final state before it judges.

After an episode, the environment is restored to its last state (by replay, or by a snapshot) and
probes are run there. An inner judge reads their observations together with the record, so it can
check a claim instead of believing it. Source: ProRe (2025, a proactive reward system), in which a
reasoner plans the probes and evaluators run them.

Probes must be read-only. Each runs from the same state; if it changes the state (of an environment
with a state key), its observation is dropped, since it could do the task itself. If the last
action terminated the environment, the probes look at the state before it.
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
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory, TurnReplay
from palaestra.evaluation.judges.case import Case, Evidence, render_case
from palaestra.evaluation.judges.model_judge import LONGEST, ask
from palaestra.evaluation.judges.verdict import Choice, Cost, Judge, Preference, Verdict

PLAN = (
    "An agent says that it has worked on a task. You may look at the world before you judge it. "
    "Say up to {most} actions that only look and change nothing, one per line, and nothing else."
)

_UNPROBED = (InputError, EnvironmentFault, InfrastructureFault, ContextTooLong)


class Prober(ABC):
    """The strategy that chooses an active judge's probes."""

    rule: str

    @abstractmethod
    async def plan(self, case: Case, env: Environment) -> tuple[list[str], Cost]:
        """Return the probes as action texts, and the cost of planning them."""


class FixedProbes(Prober):
    """A fixed list of probes for every case."""

    def __init__(self, probes: Sequence[str]) -> None:
        self.rule, self._probes = "probes: " + "; ".join(probes), list(probes)

    async def plan(self, case: Case, env: Environment) -> tuple[list[str], Cost]:
        return self._probes, Cost()


class PlannedProbes(Prober):
    """Probes that a model plans from the record and the environment's instructions."""

    def __init__(self, model: Model, most: int = 4) -> None:
        self.rule, self._model, self._most = f"probes by {model.name}, {most}", model, most

    async def plan(self, case: Case, env: Environment) -> tuple[list[str], Cost]:
        instruction = system(PLAN.format(most=self._most))
        question = user(f"{env.instructions}\n\n{render_case(case, LONGEST)}")
        reply, cost = await ask(self._model, [instruction, question], Sampling(0.0, 96))
        lines = [line.strip(" -*`") for line in reply.text.splitlines()]
        return [line for line in lines if line][: self._most], cost


class ActiveJudge(Judge):
    """A judge that probes the finished environment, then asks an inner judge."""

    def __init__(self, inner: Judge, prober: Prober, make_env: EnvironmentFactory) -> None:
        self.inner, self._prober, self._make_env = inner, prober, make_env
        self.name = f"active:{inner.name}"
        self._gathered: dict[Key, tuple[Episode, tuple[Evidence, ...]]] = {}

    @property
    def rule(self) -> str:
        return f"{self._prober.rule}\n{self.inner.rule}"

    async def judge(self, case: Case) -> Verdict:
        """Return the inner judge's verdict with evidence; no verdict if probing fails."""
        try:
            evidence, cost = await self._evidence(case)
        except _UNPROBED as why:
            return self.verdict(None, f"the environment could not be probed: {why}")
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
        """Return the inner judge's choice between the cases with their evidence."""
        try:
            (of_a, cost_a), (of_b, cost_b) = await self._evidence(a), await self._evidence(b)
        except _UNPROBED:
            return Preference(Choice.NONE)
        found = await self.inner.prefer(replace(a, evidence=of_a), replace(b, evidence=of_b))
        return replace(found, cost=found.cost + cost_a + cost_b)

    async def _evidence(self, case: Case) -> tuple[tuple[Evidence, ...], Cost]:
        """Return the probes' observations and cost; an episode is probed once."""
        known = self._gathered.get(case.episode.key)
        if known is not None and known[0] is case.episode:
            return known[1], Cost()
        started = time.monotonic()
        with TurnReplay.of(case.episode, self._make_env) as replay:
            turn = last_open(replay)
            probes, cost = await self._prober.plan(case, replay.at(turn))
            shown = gather(lambda: replay.at(turn), probes, replay.act)
            spent = Cost(actions=replay.actions, seconds=time.monotonic() - started)
        self._gathered[case.episode.key] = case.episode, shown
        return shown, cost + replace(spent, seconds=spent.seconds - cost.seconds)


def last_open(replay: TurnReplay) -> int:
    """Return the last turn before which the environment still accepted actions."""
    steps = replay.episode.steps
    ended = bool(steps) and (steps[-1].transition.terminated or steps[-1].transition.truncated)
    return len(steps) - ended


def gather(
    state: Callable[[], Environment],
    probes: Sequence[str],
    act: Callable[[Action], Transition] | None = None,
) -> tuple[Evidence, ...]:
    """Run each probe; drop those that are invalid or change the state.

    Args:
        state: returns the environment in the state to probe; called once per probe.
        probes: read-only actions.
        act: performs an action; by default the environment's own `step`.
    """
    shown: list[Evidence] = []
    for probe in probes:
        env = state()
        has_key = Capability.STATE_KEY in env.spec.capabilities
        before = env.state_key() if has_key else ""
        transition = act(Action(probe)) if act else env.step(Action(probe))
        changed = env.state_key() != before if has_key else None
        if transition.valid and not changed:
            shown.append(Evidence(probe, transition.observation.text, changed))
    return tuple(shown)
