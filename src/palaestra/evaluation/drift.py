"""Drift: whether an agent acts differently late in its episodes than early.

A value of each turn (was it understood, was it a repetition, how sure was the model) is
averaged by where in the episode the turn stood. All turns of an episode are spread over the
whole range, so that long episodes, which are the hard ones, do not alone fill its end.
Repetitions and loops need an earlier turn, so they rise in every agent: compare two agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError, UnknownName
from palaestra.evaluation.attribution.dependencies import grounded, trace
from palaestra.evaluation.metrics import looped, repeated
from palaestra.evaluation.statistics import Interval, mean_interval

TurnValues = Callable[[Episode], Sequence[float | None]]
"""One value per step of an episode; None where a step has none."""


def invalid(episode: Episode) -> list[float | None]:
    """1 where the environment did not understand the action."""
    return [float(not step.transition.valid) for step in episode.steps]


def repetition(episode: Episode) -> list[float | None]:
    """1 where the same action was taken before in the same observed state."""
    return [float(again) for again in repeated(episode)]


def loop(episode: Episode) -> list[float | None]:
    """1 where the turn begins in a state in which an earlier turn began."""
    found = looped(episode)
    return [None] * len(episode.steps) if found is None else [float(again) for again in found]


def logprob(episode: Episode) -> list[float | None]:
    """The mean log-probability of the tokens of the call that chose the action."""
    values: list[float | None] = []
    for step in episode.steps:
        chosen = () if step.call is None else episode.calls[step.call].logprobs
        values.append(sum(chosen) / len(chosen) if chosen else None)
    return values


def reply_tokens(episode: Episode) -> list[float | None]:
    """How many tokens the call that chose the action sampled."""
    lengths = (None if s.call is None else episode.calls[s.call].completion for s in episode.steps)
    return [float(len(tokens)) if tokens else None for tokens in lengths]


def goal(episode: Episode) -> list[float | None]:
    """Of what an action names, the share that stands in the task: it falls where that is lost."""
    return [
        sum(source.observation == 0 for source in of) / len(of) if of else None
        for of in trace(episode).sources
    ]


def invented(episode: Episode) -> list[float | None]:
    """1 where an action names what was never seen or told: the agent believes what is not so."""
    return [float(not known) for known in grounded(episode, trace(episode))]


def context(episode: Episode) -> list[float | None]:
    """Tokens of the conversation that an action was chosen in, with the reply."""
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
    """How one value of turns moves through episodes."""

    parts: tuple[float | None, ...]  # its mean in each part, from first to last turns
    counts: tuple[int, ...]  # turns of each part
    change: Interval | None  # second half minus first half, per task; None for under two tasks


def drift(episodes: Sequence[Episode], value: str | TurnValues, *, parts: int = 10) -> Drift:
    """A value of turns by where in its episode a turn stood, over scored episodes.

    Args:
        episodes: of one run.
        value: a name of TURN_VALUES, or a function of the kind.
        parts: into how many the length of an episode is divided (10: deciles).

    Returns:
        means by part, and the change between the halves of an episode, averaged over the
        repeats of a task and then over tasks, with a bootstrap over tasks. Episodes with a
        single turn have no halves; the middle turn of an odd number belongs to neither.

    Raises:
        UnknownName: there is no value of that name.
        InputError: `parts` is less than 2.
    """
    if parts < 2:
        raise InputError(f"Drift over {parts} part(s) cannot be seen; give 2 or more.")
    of = _named(value) if isinstance(value, str) else value
    held: list[list[float]] = [[] for _ in range(parts)]
    changes: dict[int, list[float]] = {}
    for episode in episodes:
        if not episode.outcome.scored:
            continue
        values = of(episode)
        for place, found in enumerate(values):
            if found is not None:
                held[(2 * place + 1) * parts // (2 * len(values))].append(found)
        change = _halves(values)
        if change is not None:
            changes.setdefault(episode.key.group, []).append(change)
    return Drift(
        parts=tuple(sum(part) / len(part) if part else None for part in held),
        counts=tuple(len(part) for part in held),
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
