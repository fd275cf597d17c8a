"""Phases: when a run reinforces, when it imitates itself.

A schedule decides what the next step is from the plan and the metrics of the steps
done, and from nothing else; a resumed run with the same history continues identically.

Source: Entropulse (ComputerRL, Lai et al. 2025), which alternates reinforcement and
supervised phases.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.loop.monitors import History


class PhaseKind(StrEnum):
    """What a step of the phase does."""

    RL = "rl"  # rolls out and reinforces
    SFT = "sft"  # imitates the run's own successes


@dataclass(frozen=True, slots=True)
class Falls:
    """Condition: the mean of `metric` over the phase's last `recent` steps is below `value`."""

    metric: str
    value: float
    recent: int = 3

    def holds(self, history: History, start: int, end: int) -> bool:
        """Return whether a phase with steps `start` to `end - 1` of the history fulfils it."""
        values = _last(history, start, end, self.metric, self.recent)
        return bool(values) and fmean(values) < self.value


@dataclass(frozen=True, slots=True)
class Plateau:
    """Condition: `metric` stops rising.

    The mean of the last `window` steps of the phase is less than `gain` above that of the
    `window` steps before.
    """

    metric: str
    gain: float = 0.01
    window: int = 10

    def holds(self, history: History, start: int, end: int) -> bool:
        """Return whether a phase with steps `start` to `end - 1` of the history fulfils it."""
        values = _last(history, start, end, self.metric, 2 * self.window)
        if not values:
            return False
        return fmean(values[self.window :]) - fmean(values[: self.window]) < self.gain


Condition = Falls | Plateau


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of `most` steps; it ends earlier, after `least`, once one of `until` holds."""

    kind: PhaseKind
    most: int
    least: int = 1
    until: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        """Raise RecipeError unless 1 <= least <= most."""
        if not 1 <= self.least <= self.most:
            raise RecipeError(
                f"A phase of kind {self.kind} has least = {self.least} and most = {self.most} "
                f"steps; it needs 1 <= least <= most."
            )

    def over(self, history: History, start: int, end: int) -> bool:
        """Return whether the phase is over after steps `start` to `end - 1` of the history."""
        done = end - start
        if done >= self.most:
            return True
        return done >= self.least and any(c.holds(history, start, end) for c in self.until)


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a step in a schedule."""

    phase: int  # number of the phase, from 0
    kind: PhaseKind
    step: int  # within the phase, from 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """Phases in the order in which they run."""

    phases: tuple[Phase, ...]

    def after(self, history: History) -> Position | None:
        """Return the position of the step after those of `history`; None after all phases."""
        start = 0
        for number, phase in enumerate(self.phases):
            end = start
            while not phase.over(history, start, end):
                if end == len(history):
                    return Position(number, phase.kind, end - start + 1)
                end += 1
            start = end
        return None


def entropulse(
    *,
    rl_steps: int,
    sft_steps: int,
    cycles: int = 1,
    least: int = 1,
    entropy: float | None = None,
    plateau: int | None = None,
) -> Schedule:
    """Reinforce, imitate the run's own successes so that entropy recovers, reinforce again.

    Source: Entropulse (ComputerRL, Lai et al. 2025), by digests. There the boundary was set by
    hand (`rl_steps`); ending a phase by entropy or plateau is a proposal. Entropy must rise
    over the imitation and success must not fall by more than noise: compare the metrics of
    the steps around it. It used about half of the cold start's learning rate.

    Args:
        rl_steps: most steps per phase of reinforcement.
        sft_steps: steps per phase of imitation.
        cycles: number of imitation phases.
        least: fewest steps before an early end.
        entropy: end a phase of reinforcement once the entropy (nats per token) falls below it.
        plateau: window in steps: end the phase once success over one window is less than 0.01
            above that over the window before.
    """
    until: tuple[Condition, ...] = ()
    if entropy is not None:
        until += (Falls("entropy", entropy),)
    if plateau is not None:
        until += (Plateau("success", window=plateau),)
    cycle = (Phase(PhaseKind.RL, rl_steps, least, until), Phase(PhaseKind.SFT, sft_steps))
    return Schedule((*(cycle * cycles), Phase(PhaseKind.RL, rl_steps)))


@dataclass(frozen=True, slots=True)
class Success:
    """A solved rollout of the run, from any policy."""

    task: str
    key: Key
    version: int  # of the weights that sampled it, or any number that grows with them


def demonstrations(
    successes: Sequence[Success], *, per_task: int = 1, seed: int = 0
) -> list[Success]:
    """Sample the successes to imitate: at most `per_task` of each task, from all policies.

    Source: Entropulse (ComputerRL, Lai et al. 2025), by digests. Without the cap easy tasks
    dominate. The order of `successes` does not matter.
    """
    by_task: dict[str, list[Success]] = {}
    for success in sorted(successes, key=lambda s: (s.task, str(s.key))):
        by_task.setdefault(success.task, []).append(success)
    chosen: list[Success] = []
    for task, found in by_task.items():
        chosen += random.Random(f"{seed}/{task}").sample(found, min(per_task, len(found)))
    return chosen


def _last(history: History, start: int, end: int, metric: str, count: int) -> list[float]:
    """Return the metric at the last `count` steps of a phase; empty unless all of them have it."""
    if end - start < count:
        return []
    values = [metrics[metric] for metrics in history[end - count : end] if metric in metrics]
    return values if len(values) == count else []
