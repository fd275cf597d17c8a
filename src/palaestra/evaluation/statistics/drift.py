"""Drift: whether an agent acts differently late in its episodes than early.

A value of each turn (validity, repetition, the model's log-probability) is averaged by the turn's
relative position in its episode. Each episode is stretched over the whole range, so that the last
parts do not consist of long (hard) episodes only. Repetitions and loops need an earlier turn, so
they rise for every agent: compare two agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError, UnknownName
from palaestra.evaluation.attribution.dependencies import grounded, trace
from palaestra.evaluation.statistics.episode_metrics import looped, repeated
from palaestra.evaluation.statistics.intervals import Interval, mean_interval

TurnValues = Callable[[Episode], Sequence[float | None]]
"""One value per step of an episode; None for a step without a value."""


def invalid(episode: Episode) -> list[float | None]:
    """Return 1 for each invalid action."""
    return [float(not step.transition.valid) for step in episode.steps]


def repetition(episode: Episode) -> list[float | None]:
    """Return 1 for each action that was taken before in the same observed state."""
    return [float(again) for again in repeated(episode)]


def loop(episode: Episode) -> list[float | None]:
    """Return 1 for each turn that begins in a state in which an earlier turn began."""
    found = looped(episode)
    return [None] * len(episode.steps) if found is None else [float(again) for again in found]


def logprob(episode: Episode) -> list[float | None]:
    """Return the mean log-probability of the tokens of the call that chose each action."""
    values: list[float | None] = []
    for step in episode.steps:
        chosen = () if step.call is None else episode.calls[step.call].logprobs
        values.append(sum(chosen) / len(chosen) if chosen else None)
    return values


def reply_tokens(episode: Episode) -> list[float | None]:
    """Return how many tokens the call that chose each action sampled."""
    lengths = (None if s.call is None else episode.calls[s.call].completion for s in episode.steps)
    return [float(len(tokens)) if tokens else None for tokens in lengths]


def goal(episode: Episode) -> list[float | None]:
    """Return the share of an action's words that come from the task: it falls as the goal fades."""
    return [
        sum(source.observation == 0 for source in of) / len(of) if of else None
        for of in trace(episode).sources
    ]


def invented(episode: Episode) -> list[float | None]:
    """Return 1 for each action with names or numbers that occur nowhere before it."""
    return [float(not known) for known in grounded(episode, trace(episode))]


def context(episode: Episode) -> list[float | None]:
    """Return the tokens of the conversation that chose each action, with the reply."""
    graph = episode.graph
    lengths = (
        None if step.call is None else len(graph.tokens(step.call)) for step in episode.steps
    )
    return [float(length) if length else None for length in lengths]


TURN_VALUES: dict[str, TurnValues] = {
    "invalid": invalid,
    "repetition": repetition,
    "loop": loop,
    "logprob": logprob,
    "reply_tokens": reply_tokens,
    "goal": goal,
    "invented": invented,
    "context": context,
}


@dataclass(frozen=True, slots=True)
class Drift:
    """The trend of one value of turns over the course of episodes."""

    parts: tuple[float | None, ...]  # the mean in each part, from first to last turns
    counts: tuple[int, ...]  # turns in each part
    change: Interval | None  # second half minus first half, per task; None for fewer than two


def drift(episodes: Sequence[Episode], value: str | TurnValues, *, parts: int = 10) -> Drift:
    """Average a value of turns by the turn's position in its episode, over scored episodes.

    Args:
        episodes: of one run.
        value: a name in TURN_VALUES, or a function of that type.
        parts: the number of parts of an episode (10: deciles).

    Returns:
        means by part, and the change between the halves of an episode, averaged over the
        repeats of a task and then over tasks, with a bootstrap over tasks. Episodes with a
        single turn have no halves; the middle turn of an odd number belongs to neither.

    Raises:
        UnknownName: there is no value of that name.
        InputError: `parts` is less than 2.
    """
    if parts < 2:
        raise InputError(f"`parts` is {parts}, and drift needs at least two; give 2 or more.")
    of = _named(value) if isinstance(value, str) else value
    by_part: list[list[float]] = [[] for _ in range(parts)]
    changes: dict[int, list[float]] = {}
    for episode in episodes:
        if not episode.outcome.scored:
            continue
        values = of(episode)
        for position, found in enumerate(values):
            if found is not None:
                by_part[(2 * position + 1) * parts // (2 * len(values))].append(found)
        change = _halves(values)
        if change is not None:
            changes.setdefault(episode.key.group, []).append(change)
    return Drift(
        parts=tuple(sum(part) / len(part) if part else None for part in by_part),
        counts=tuple(len(part) for part in by_part),
        change=_interval([sum(task) / len(task) for task in changes.values()]),
    )


def _named(name: str) -> TurnValues:
    if name not in TURN_VALUES:
        raise UnknownName("value of turns", name, TURN_VALUES)
    return TURN_VALUES[name]


def _halves(values: Sequence[float | None]) -> float | None:
    half = len(values) // 2
    early = [value for value in values[:half] if value is not None]
    late = [value for value in values[len(values) - half :] if value is not None]
    return sum(late) / len(late) - sum(early) / len(early) if early and late else None


def _interval(changes: Sequence[float]) -> Interval | None:
    try:
        return mean_interval(changes)
    except GroupTooSmall:
        return None
