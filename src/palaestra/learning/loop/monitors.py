"""Monitors: signs of trouble in the metrics of a run.

A monitor is a pure function of the metrics of all steps so far, oldest first; it decides
whether the latest step is a cause for alarm. Thresholds are its defaults. A metric
that the latest step did not report raises no alarm.

Spread, entropy and gradients change in a run that learns as they do in one that collapses: returns
become alike because all succeed. The reward distinguishes the two, so the monitors of collapse
are silent while it rises, or where nearly all tasks are solved. How often they raise alarms in
healthy runs is measured: docs/results/monitors.md.

Figures read: `success` (share of rollouts), `reward` (mean return), `group_std` (mean over
groups of the standard deviation of returns, `filters.spread`), `gradient_norm`, `entropy` (nats
per token), `clipped` (share of tokens), `discarded` (share of groups), `gap` (mean absolute
difference of log-probabilities between learner and engine), and `step` if it differs from the
position in the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

History = Sequence[Mapping[str, float]]

SOLVED = 0.9  # success above which rollouts are alike because they succeed


@dataclass(frozen=True, slots=True)
class Alarm:
    """A finding of a monitor that a person should look at."""

    name: str  # of the monitor
    message: str  # one sentence: what was measured, what is normal, what to do
    step: int
    value: float  # what was measured, in the units of the metric
    threshold: float | None  # what it passed; None: it is not a number at all


def variance_cliff(
    history: History,
    *,
    window: int = 10,
    recent: int = 4,
    share: float = 0.5,
    paid: float = 0.25,
    lasting: int = 2,
) -> Alarm | None:
    """Detect that returns within groups stop differing: the early sign of an echo trap (RAGEN).

    Fires when the mean `group_std` of the last `recent` steps is below `share` of the mean
    of the `window` steps before them, unless most tasks are solved or the mean `reward` rose
    meanwhile by `paid` of what the spread lost: where rollouts become alike because they
    succeed, it rises by half of it (groups of 4) or a quarter (of 16). It must be so at `lasting`
    steps in a row: the spread of few groups scatters by a third from step to step. A policy that is
    better than at the start (see `_learned`) has converged: there, luck alone decides.
    """
    if _learned(history, window):
        return None
    ends = range(len(history), max(0, len(history) - lasting), -1)
    found = [_cliff(history[:end], window, recent, share, paid) for end in ends]
    return found[0] if len(found) == lasting and None not in found else None


def _cliff(
    history: History, window: int = 10, recent: int = 4, share: float = 0.5, paid: float = 0.25
) -> Alarm | None:
    """Return what `variance_cliff` finds at the latest step alone, in any policy."""
    values = _values(history, "group_std")
    if len(values) < window + recent or _solved(history, recent):
        return None
    now, before = _ends(values, window, recent)
    if not (before > 0 and now < share * before):
        return None
    rewards = _values(history, "reward")
    if len(rewards) >= window + recent:
        after, earlier = _ends(rewards, window, recent)
        if after - earlier >= paid * (before - now):
            return None
    return _alarm(
        "variance_cliff",
        history,
        f"returns within groups vary by {now:.3g}, less than {share:g} of the {before:.3g} before, "
        f"and the mean return has not risen for it, so there is little left to learn from; keep "
        f"the groups that vary most (filter starpo), or go on from an earlier checkpoint with a "
        f"lower learning rate",
        now,
        share * before,
    )


def gradient_spike(
    history: History,
    *,
    window: int = 10,
    recent: int = 3,
    factor: float = 5.0,
    harm: float = 0.4,
) -> Alarm | None:
    """Detect that the gradient's norm jumps and does harm: the late sign of an echo trap (RAGEN).

    Fires when it is not finite, or when the median of the last `recent` steps is more than
    `factor` times that of the `window` steps before, unless most tasks are solved or the mean
    `reward` has not fallen meanwhile by `harm` times the spread of returns: harmless jumps are
    usual, above all where few rollouts are left to learn from.
    """
    values = _values(history, "gradient_norm")
    if not values:
        return None
    remedy = "lower the learning rate or clip the gradient's norm more tightly"
    if not math.isfinite(values[-1]):
        message = f"the gradient's norm is {values[-1]}, not a finite number; {remedy}"
        return _alarm("gradient_spike", history, message, values[-1], None)
    values = [value for value in values if math.isfinite(value)]
    if len(values) < window + recent or _solved(history, recent):
        return None
    now, normal = median(values[-recent:]), median(values[-recent - window : -recent])
    if not (normal > 0 and now > factor * normal):
        return None
    rewards, spreads = _values(history, "reward"), _values(history, "group_std")
    if min(len(rewards), len(spreads)) >= window + recent:
        after, before = _ends(rewards, window, recent)
        if before - after < harm * _ends(spreads, window, recent)[1]:
            return None
    return _alarm(
        "gradient_spike",
        history,
        f"the gradient's norm is {now:.3g}, more than {factor:g} times its usual {normal:.3g}, and "
        f"the mean return falls; {remedy}",
        now,
        factor * normal,
    )


def entropy_collapse(
    history: History,
    *,
    window: int = 10,
    recent: int = 3,
    share: float = 0.2,
    gained: float = 0.25,
) -> Alarm | None:
    """Detect that the policy stops exploring before it has learned anything.

    Fires when the mean `entropy` of the last `recent` steps is below `share` of the mean
    of the first `window`, unless most tasks are solved or the mean `reward` has risen since by
    `gained` times the spread that returns within groups had then: a policy that knows what to
    do needs no entropy.
    """
    values = _values(history, "entropy")
    if len(values) < window + recent or _solved(history, recent):
        return None
    now, first = fmean(values[-recent:]), fmean(values[:window])
    if not (first > 0 and now < share * first):
        return None
    if _learned(history, recent, gained):
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
    """Detect that too many tokens are clipped: updates are larger than the trust region.

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
    """Detect that the filter leaves out nearly all groups: unfit tasks or a broken reward.

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
    """Detect that engine and learner disagree about the policy's log-probabilities.

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


def echo_trap(
    history: History,
    *,
    window: int = 20,
    before: int = 10,
    recent: int = 4,
    gained: float = 0.25,
) -> Alarm | None:
    """Detect that the policy repeats itself: variance fell, then entropy or gradients break.

    Source: the collapse that RAGEN describes (Wang et al. 2025); this test of it is ours.
    Fires when `entropy_collapse` or `gradient_spike` fires now, and the spread of returns fell as
    for `variance_cliff` within the last `window` steps, unless the mean `reward` has risen by
    `gained` times the spread of returns since the `before` steps ahead of the cliff.
    """
    late = [a for a in (entropy_collapse(history), gradient_spike(history)) if a]
    if not late:
        return None
    ends = range(max(0, len(history) - window) + 1, len(history) + 1)
    cliffs = ((end, _cliff(history[:end])) for end in ends)
    end, early = next(((end, alarm) for end, alarm in cliffs if alarm), (0, None))
    if early is None:
        return None
    then = history[: max(1, end - recent)]
    rewards, spreads = _values(then, "reward"), _values(then, "group_std")
    if rewards and spreads and "reward" in history[-1]:
        rise = fmean(_values(history, "reward")[-recent:]) - fmean(rewards[-before:])
        if rise >= gained * fmean(spreads[-before:]) > 0:
            return None
    names = " and ".join(alarm.name for alarm in late)
    return _alarm(
        "echo_trap",
        history,
        f"{names} followed a cliff in the variance of returns (step {early.step}, at "
        f"most {window} steps ago) and the mean return has not risen since, so the policy is "
        f"likely repeating itself; go back to a checkpoint before step {early.step} and use filter "
        f"starpo, a higher upper clip bound and fewer updates per batch",
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
    """Return the alarms that the latest step raises."""
    return [alarm for monitor in monitors if (alarm := monitor(history))]


def _values(history: History, metric: str) -> list[float]:
    """Return the metric at each step that has it; empty if the latest has not."""
    if not history or metric not in history[-1]:
        return []
    return [metrics[metric] for metrics in history if metric in metrics]


def _ends(values: Sequence[float], window: int, recent: int) -> tuple[float, float]:
    """Return means of the last `recent` values and of the `window` values before them."""
    return fmean(values[-recent:]), fmean(values[-recent - window : -recent])


def _solved(history: History, recent: int) -> bool:
    """Return whether most tasks are solved; False if that is unknown."""
    values = _values(history, "success")
    return len(values) >= recent and fmean(values[-recent:]) >= SOLVED


def _learned(history: History, recent: int, gained: float = 0.25, opening: int = 5) -> bool:
    """Return whether the mean return of the last `recent` steps shows what the run has learned.

    It does if it is above that of the first `opening` steps by `gained` of the spread that returns
    had then. More than five steps would hide how fast small games are learned.
    """
    rewards, spreads = _values(history, "reward"), _values(history, "group_std")
    if not rewards or not spreads:
        return False
    rise = fmean(rewards[-recent:]) - fmean(rewards[:opening])
    return rise >= gained * fmean(spreads[:opening]) > 0


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
