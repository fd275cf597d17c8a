"""Monitors: what the figures of a run say about its health.

A monitor is a pure function of the metrics of all steps so far, oldest first; it says
whether the latest step gives cause for alarm. Thresholds are its defaults. A figure
that the latest step did not report raises no alarm.

Figures read: `group_std` (mean over groups of the standard deviation of returns,
`filters.spread`), `gradient_norm`, `entropy` (nats per token), `clipped` (share of tokens),
`discarded` (share of groups), `gap` (mean absolute difference of log-probabilities
between learner and engine), and `step` if it differs from the position in the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

History = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that a person should look at."""

    name: str  # of the monitor
    message: str  # one sentence: what was measured, what is normal, what to do
    step: int
    value: float  # what was measured, in the units of the figure
    threshold: float | None  # what it passed; None: it is not a number at all


def variance_cliff(
    history: History, *, window: int = 10, recent: int = 3, share: float = 0.5
) -> Alarm | None:
    """Returns within groups stop differing: the early sign of an echo trap (RAGEN).

    Fires when the mean `group_std` of the last `recent` steps is below `share` of the mean
    of the `window` steps before them.
    """
    values = _values(history, "group_std")
    if len(values) < window + recent:
        return None
    now, before = fmean(values[-recent:]), fmean(values[-recent - window : -recent])
    if not (before > 0 and now < share * before):
        return None
    return _alarm(
        "variance_cliff",
        history,
        f"returns within groups vary by {now:.3g}, less than {share:g} of the {before:.3g} before, "
        f"so there is little left to learn from; keep the groups that vary most (filter starpo), "
        f"or go on from an earlier checkpoint with a lower learning rate",
        now,
        share * before,
    )


def gradient_spike(history: History, *, window: int = 10, factor: float = 5.0) -> Alarm | None:
    """The gradient's norm leaps: the late sign of an echo trap (RAGEN).

    Fires when it is not finite, or more than `factor` times the median of the `window`
    steps before.
    """
    values = _values(history, "gradient_norm")
    if not values:
        return None
    now, before = values[-1], [v for v in values[:-1] if math.isfinite(v)][-window:]
    remedy = "lower the learning rate or clip the gradient's norm more tightly"
    if not math.isfinite(now):
        message = f"the gradient's norm is {now}, not a finite number; {remedy}"
        return _alarm("gradient_spike", history, message, now, None)
    if len(before) < window:
        return None
    normal = median(before)
    if not (normal > 0 and now > factor * normal):
        return None
    return _alarm(
        "gradient_spike",
        history,
        f"the gradient's norm is {now:.3g}, more than {factor:g} times its usual {normal:.3g}; "
        f"{remedy}",
        now,
        factor * normal,
    )


def entropy_collapse(
    history: History, *, window: int = 10, recent: int = 3, share: float = 0.2
) -> Alarm | None:
    """The policy stops exploring.

    Fires when the mean `entropy` of the last `recent` steps is below `share` of the mean
    of the first `window`.
    """
    values = _values(history, "entropy")
    if len(values) < window + recent:
        return None
    now, first = fmean(values[-recent:]), fmean(values[:window])
    if not (first > 0 and now < share * first):
        return None
    return _alarm(
        "entropy_collapse",
        history,
        f"the entropy is {now:.3g} nats per token, less than {share:g} of the {first:.3g} at the "
        f"start; raise the upper clip bound, add an entropy term, or insert an imitation phase "
        f"on the run's own successes",
        now,
        share * first,
    )


def clip_fraction(history: History, *, recent: int = 3, most: float = 0.3) -> Alarm | None:
    """Too many tokens are clipped: updates are larger than the trust region.

    Fires when the mean `clipped` of the last `recent` steps is above `most`.
    """
    return _above(
        history,
        "clipped",
        recent,
        most,
        "clip_fraction",
        "of the tokens have a ratio outside the clip range",
        "lower the learning rate or make fewer updates per batch",
    )


def discard_rate(history: History, *, recent: int = 5, most: float = 0.8) -> Alarm | None:
    """The filter leaves out nearly all groups: tasks do not fit, or the reward is broken.

    Fires when the mean `discarded` of the last `recent` steps is above `most`. DAPO itself
    plans for two thirds (it generates three times its training batch).
    """
    return _above(
        history,
        "discarded",
        recent,
        most,
        "discard_rate",
        "of the groups were left out",
        "look at whether tasks are too easy, too hard, or wrongly scored",
    )


def engine_gap(history: History, *, recent: int = 3, most: float = 0.05) -> Alarm | None:
    """Engine and learner disagree about the policy's log-probabilities.

    Fires when the mean `gap` of the last `recent` steps is above `most` nats per token.
    Rounding to bf16 alone gives about 0.02.
    """
    return _above(
        history,
        "gap",
        recent,
        most,
        "engine_gap",
        "nats per token lie between the engine's log-probabilities and the learner's",
        "check that both use the same weights and temperature, or correct with truncated "
        "importance weights",
    )


def echo_trap(history: History, *, window: int = 20) -> Alarm | None:
    """The policy repeats itself: variance has fallen, then entropy collapses or gradients leap.

    Source: the collapse that RAGEN describes (Wang et al. 2025); this test of it is ours.
    Fires when `entropy_collapse` or `gradient_spike` fires now and `variance_cliff` fires
    now or fired within the last `window` steps.
    """
    late = [a for a in (entropy_collapse(history), gradient_spike(history)) if a]
    if not late:
        return None
    ends = range(max(0, len(history) - window) + 1, len(history) + 1)
    early = next((a for a in (variance_cliff(history[:end]) for end in ends) if a), None)
    if early is None:
        return None
    names = " and ".join(alarm.name for alarm in late)
    return _alarm(
        "echo_trap",
        history,
        f"{names} followed a cliff in the variance of returns (step {early.step}, at "
        f"most {window} steps ago), so the policy is likely repeating itself; go back to a "
        f"checkpoint before step {early.step} and use filter starpo, a higher upper clip bound and "
        f"fewer updates per batch",
        late[0].value,
        late[0].threshold,
    )


Monitor = Callable[[History], Alarm | None]

MONITORS: tuple[Monitor, ...] = (
    variance_cliff,
    gradient_spike,
    entropy_collapse,
    clip_fraction,
    discard_rate,
    engine_gap,
    echo_trap,
)


def alarms(history: History, monitors: Sequence[Monitor] = MONITORS) -> list[Alarm]:
    """The alarms that the latest step raises."""
    return [alarm for monitor in monitors if (alarm := monitor(history))]


def _values(history: History, metric: str) -> list[float]:
    """The figure at each step that has it; empty if the latest has not."""
    if not history or metric not in history[-1]:
        return []
    return [metrics[metric] for metrics in history if metric in metrics]


def _above(
    history: History, metric: str, recent: int, most: float, name: str, what: str, remedy: str
) -> Alarm | None:
    values = _values(history, metric)
    if len(values) < recent:
        return None
    now = fmean(values[-recent:])
    if not now > most:
        return None
    message = f"{now:.3g} {what}, more than {most:g}; {remedy}"
    return _alarm(name, history, message, now, most)


def _alarm(
    name: str, history: History, message: str, value: float, threshold: float | None
) -> Alarm:
    step = int(history[-1].get("step", len(history)))
    return Alarm(name, f"Step {step}: {message}.", step, value, threshold)
