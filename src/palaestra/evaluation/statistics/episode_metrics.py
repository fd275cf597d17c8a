"""Metrics of one episode, and of a list of episodes by skill or difficulty.

Each measure is a function from an episode to a number, or to None if the episode lacks the data:
an undeclared capability, no model call, no step. None means missing, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode, Step
from palaestra.core.errors import GroupTooSmall, UnknownName
from palaestra.evaluation.attribution.dependencies import grounded, trace
from palaestra.evaluation.statistics.intervals import (
    Interval,
    mean_interval,
    success_interval,
    task_scores,
)

Measure = Callable[[Episode], float | None]


def success(episode: Episode) -> float:
    """Return 1 if the task is solved, else 0."""
    return float(episode.outcome.solved)


def reward(episode: Episode) -> float:
    """Return the sum of the environment's own rewards."""
    return episode.reward


def progress(episode: Episode) -> float | None:
    """Return the largest share of the task done at any time, if the environment declares it.

    This is AgentBoard's progress rate (Ma et al. 2024): progress that is undone later still
    counts. `Episode.progress` is the share at the end.
    """
    reached = [step.before.progress for step in episode.steps] + [episode.progress]
    known = [value for value in reached if value is not None]
    return max(known, default=None)


def turns(episode: Episode) -> float:
    """Return the number of actions."""
    return float(len(episode.steps))


def sampled_tokens(episode: Episode) -> float:
    """Return the number of tokens sampled by models."""
    return float(episode.usage.sampled_tokens)


def prompt_tokens(episode: Episode) -> float:
    """Return the number of prompt tokens that models read beyond their cached ones."""
    return float(episode.usage.prompt_tokens)


def seconds(episode: Episode) -> float:
    """Return the episode's own wall-clock time, also if it ran beside others."""
    return episode.usage.seconds


def seconds_per_turn(episode: Episode) -> float | None:
    """Return the mean latency of a turn; None without a turn."""
    return episode.usage.seconds / len(episode.steps) if episode.steps else None


def invalid_rate(episode: Episode) -> float | None:
    """Return the share of invalid actions."""
    return _share([not step.transition.valid for step in episode.steps])


def repetition_rate(episode: Episode) -> float | None:
    """Return the share of actions that were taken before in the same observed state."""
    return _share(repeated(episode))


def loop_rate(episode: Episode) -> float | None:
    """Return the share of turns that begin in a state in which an earlier turn began.

    A turn that changes nothing counts as a loop of length one. None if the environment does not
    declare `state_key`.
    """
    found = looped(episode)
    return None if found is None else _share(found)


def grounding(episode: Episode) -> float | None:
    """Return the share of actions whose names and numbers all occur before them."""
    return _share(grounded(episode, trace(episode)))


SAFETY = ("unsafe", "attack_succeeded")
"""The keys of `Transition.info` with which environments report harm."""


def unsafe(episode: Episode) -> float | None:
    """Return the number of steps reported as harmful; None if the environment never reports."""
    reported = [step.transition.info.get(name) for step in episode.steps for name in SAFETY]
    known = [harm for harm in reported if harm is not None]
    return float(sum(map(bool, known))) if known else None


def largest_prompt(episode: Episode) -> float | None:
    """Return the tokens of the longest prompt of any call; None without recorded tokens."""
    graph = episode.graph
    lengths = [
        len(graph.tokens(call.index)) - len(call.completion)
        for call in episode.calls
        if call.prompt or call.completion
    ]
    return float(max(lengths)) if lengths else None


def context_use(context: int) -> Measure:
    """Make a measure: the share of a context of `context` tokens that the longest prompt fills."""

    def share(episode: Episode) -> float | None:
        longest = largest_prompt(episode)
        return None if longest is None else longest / context

    return share


METRICS: dict[str, Measure] = {
    "success": success,
    "reward": reward,
    "progress": progress,
    "turns": turns,
    "sampled_tokens": sampled_tokens,
    "prompt_tokens": prompt_tokens,
    "seconds": seconds,
    "seconds_per_turn": seconds_per_turn,
    "invalid_rate": invalid_rate,
    "repetition_rate": repetition_rate,
    "loop_rate": loop_rate,
    "grounding": grounding,
    "unsafe": unsafe,
    "largest_prompt": largest_prompt,
}


# ── turn by turn ─────────────────────────────────────────────────────────────


def repeated(episode: Episode) -> list[bool]:
    """Return, for each step, whether its action was taken before in the same observed state.

    The state is the environment's `state_key` if it declares one, else the last observation.
    """
    seen: set[tuple[str, str]] = set()
    found: list[bool] = []
    last = episode.observation.text if episode.observation is not None else ""
    for step in episode.steps:
        state = last if step.before.state_key is None else step.before.state_key
        now = (state, _words(step))
        found.append(now in seen)
        seen.add(now)
        last = step.transition.observation.text
    return found


def looped(episode: Episode) -> list[bool] | None:
    """Return, for each step, whether an earlier one began in the same state; None: no state key."""
    keys = [step.before.state_key for step in episode.steps]
    if any(key is None for key in keys):
        return None
    seen: set[str | None] = set()
    found: list[bool] = []
    for key in keys:
        found.append(key in seen)
        seen.add(key)
    return found


# ── over episodes ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Summary:
    """One measure over episodes; the unit is the task, and repeats are averaged first."""

    mean: float | None  # None if no episode has a value
    interval: Interval | None  # None for fewer than two tasks
    tasks: int  # with a value


def task_means(episodes: Sequence[Episode], measure: Measure) -> dict[int, float]:
    """Return the mean of `measure` over each task's scored episodes, by task number."""
    values: dict[int, list[float]] = {}
    for episode in episodes:
        if episode.outcome.scored and (value := measure(episode)) is not None:
            values.setdefault(episode.key.group, []).append(value)
    return {group: sum(of) / len(of) for group, of in sorted(values.items())}


def summarise(episodes: Sequence[Episode], measure: Measure) -> Summary:
    """Return the mean of a measure over tasks, with a bootstrap over tasks."""
    means = list(task_means(episodes, measure).values())
    if not means:
        return Summary(None, None, 0)
    try:
        interval = mean_interval(means)
    except GroupTooSmall:
        return Summary(means[0], None, 1)
    return Summary(interval.mean, interval, interval.n)


@dataclass(frozen=True, slots=True)
class Part:
    """The success on one part of the tasks."""

    success: Interval | None  # None if no episode has a result
    episodes: int  # all of them, faults included


def breakdown(episodes: Sequence[Episode], by: str) -> dict[str, Part]:
    """Break success down by skill, difficulty, environment, or any label of the episodes.

    Args:
        episodes: of one run, in which a task number identifies a task.
        by: a label of the episodes, else a parameter of their tasks; or `environment`,
            `agent`, `split`.

    Returns:
        the parts by value, sorted; episodes without a value are under "".

    Raises:
        UnknownName: no episode has a label or parameter of that name.
    """
    parts: dict[str, list[Episode]] = {}
    for episode in episodes:
        parts.setdefault(_label(episode, by), []).append(episode)
    if episodes and set(parts) == {""}:
        known = {*_OWN, *(name for e in episodes for name in (*e.labels, *e.task.parameters))}
        raise UnknownName("label or parameter", by, known)
    return {
        value: Part(success_interval(list(task_scores(of).values())), len(of))
        for value, of in sorted(parts.items())
    }


_OWN: Mapping[str, Callable[[Episode], str]] = {
    "environment": lambda episode: episode.task.environment,
    "agent": lambda episode: episode.agent,
    "split": lambda episode: str(episode.task.split),
}


def _label(episode: Episode, by: str) -> str:
    if by in episode.labels:
        return episode.labels[by]
    if by in episode.task.parameters:
        return str(episode.task.parameters[by])
    return _OWN[by](episode) if by in _OWN else ""


def _words(step: Step) -> str:
    return step.action.text if step.action.call is None else str(step.action.call)


def _share(marks: Sequence[bool]) -> float | None:
    return sum(marks) / len(marks) if marks else None
