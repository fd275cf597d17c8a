"""Phases: when a run practises, when it imitates itself.

A schedule decides what the next step is from the plan and the metrics of the steps
done, and from nothing else; a run that resumes with the same history goes on the same.

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
from palaestra.learning.monitors import History


class PhaseKind(StrEnum):
    """What a step of the phase does."""

    RL = "rl"  # rolls out and reinforces
    SFT = "sft"  # imitates the run's own successes


@dataclass(frozen=True, slots=True)
class Falls:
    """Holds when the mean of `metric` over the phase's last `recent` steps is below `value`."""

    metric: str
    value: float
    recent: int = 3

    def holds(self, history: History, start: int, end: int) -> bool:
        """For a phase that made steps `start` to `end - 1` of the history."""
        values = _last(history, start, end, self.metric, self.recent)
        return bool(values) and fmean(values) < self.value


@dataclass(frozen=True, slots=True)
class Plateau:
    """Holds when `metric` stops rising.

    The mean of the last `window` steps of the phase is less than `gain` above that of the
    `window` steps before.
    """

    metric: str
    gain: float = 0.01
    window: int = 10

    def holds(self, history: History, start: int, end: int) -> bool:
        """For a phase that made steps `start` to `end - 1` of the history."""
        values = _last(history, start, end, self.metric, 2 * self.window)
        if not values:
            return False
        return fmean(values[self.window :]) - fmean(values[: self.window]) < self.gain


Condition = Falls | Plateau


@dataclass(frozen=True, slots=True)
class Phase:
    """Ends after `most` steps, or earlier: after `least`, once one of `until` holds."""

    kind: PhaseKind
    most: int
    least: int = 1
    until: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        """Raises RecipeError unless 1 <= least <= most."""
        if not 1 <= self.least <= self.most:
            raise RecipeError(
                f"A phase of kind {self.kind} has least = {self.least} and most = {self.most} "
                f"steps; it needs 1 <= least <= most."
            )

    def over(self, history: History, start: int, end: int) -> bool:
        """Whether the phase is over when it made steps `start` to `end - 1` of the history."""
        done = end - start
        if done >= self.most:
            return True
        return done >= self.least and any(c.holds(history, start, end) for c in self.until)


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a schedule a step is."""

    phase: int  # number of the phase, from 0
    kind: PhaseKind
    step: int  # within the phase, from 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """Phases in the order in which they are lived."""

    phases: tuple[Phase, ...]

    def after(self, history: History) -> Position | None:
        """What the step after those of `history` is; None when all phases are over."""
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
    over the imitation and success must not fall by more than noise: compare the figures of
    the steps around it. About half of the cold start's learning rate was used for it.

    Args:
        rl_steps: at most so many steps per phase of reinforcement.
        sft_steps: so many steps per phase of imitation.
        cycles: how often imitation comes in between.
        least: at least so many steps before an early end.
        entropy: end a phase of reinforcement once the entropy (nats per token) falls below it.
        plateau: end it once success over so many steps is less than 0.01 above as many before.
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
    """A solved rollout of the run, from whichever policy."""

    task: str
    key: Key
    version: int  # of the weights that lived it, or any number that grows with them


def demonstrations(
    successes: Sequence[Success], *, per_task: int = 1, seed: int = 0
) -> list[Success]:
    """The successes to imitate: at most `per_task` of each task, at random, from all policies.

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
    """The figure at the last `count` steps of a phase; empty unless all of them have it."""
    if end - start < count:
        return []
    values = [metrics[metric] for metrics in history[end - count : end] if metric in metrics]
    return values if len(values) == count else []
