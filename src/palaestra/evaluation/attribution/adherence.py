"""Adherence to a procedure: whether an agent took the steps that a policy allows, in its order.

A procedure is a directed graph of named steps, such as the tool calls in customer support. An
agent that reaches the goal by a forbidden path did not adhere, whatever the outcome says.

Source: Balaji et al. 2026 (JourneyBench): procedures as graphs, and a score of the whole
journey that is 0 where its order is broken. `journey_score` follows the description in the
abstract and in public summaries; it was not compared with the authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.tool import NotACall, Tool, parse_call


@dataclass(frozen=True, slots=True)
class Procedure:
    """The graph of allowed steps: first steps, successors of each step, and last steps."""

    starts: frozenset[str]
    follows: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ends: frozenset[str] = frozenset()  # empty: with any

    def __post_init__(self) -> None:
        if not self.starts:
            raise InputError("`starts` is empty; name at least one first step.")
        for name in self.ends:
            if name not in self.steps:
                raise UnknownName("step of the procedure", name, self.steps)

    @property
    def steps(self) -> frozenset[str]:
        """All steps of the procedure."""
        return self.starts.union(self.follows, *self.follows.values())

    def allows(self, before: str | None, step: str) -> bool:
        """Return whether `step` may follow `before` (None: may come first)."""
        return step in (self.starts if before is None else self.follows.get(before, frozenset()))


@dataclass(frozen=True, slots=True)
class Adherence:
    """How closely an episode followed a procedure."""

    taken: int  # steps that the procedure names
    allowed: int  # how many of these were allowed where they were taken
    first_breach: int | None  # index of the first forbidden step in `Episode.steps`
    ended: bool  # the last allowed step is one that the procedure may end with

    @property
    def share(self) -> float | None:
        """The share of taken steps that were allowed; None if none was taken."""
        return self.allowed / self.taken if self.taken else None

    @property
    def kept(self) -> bool:
        """Whether the whole procedure was followed, from a first step to an end."""
        return bool(self.taken) and self.allowed == self.taken and self.ended


def calls_of(episode: Episode, tools: Sequence[Tool] = ()) -> list[tuple[int, ToolCall]]:
    """Return the valid tool calls of an episode, each with the index of its step.

    Args:
        episode: the record.
        tools: the environment's tools; with them, text actions are parsed as calls too. Without
            them, only actions recorded as calls are returned.
    """
    found: list[tuple[int, ToolCall]] = []
    for step in episode.steps:
        if not step.transition.valid:
            continue
        if step.action.call is not None:
            found.append((step.index, step.action.call))
        elif tools:
            with suppress(NotACall):  # plain text is not a step of a procedure
                found.append((step.index, parse_call(step.action.text, tools)))
    return found


def adherence(episode: Episode, procedure: Procedure, tools: Sequence[Tool] = ()) -> Adherence:
    """Walk the tool calls of an episode through a procedure.

    Calls that the procedure does not name (a lookup, say) are always allowed. A forbidden step
    does not advance the walk: later steps are judged from the last allowed one.
    """
    known = procedure.steps
    at: str | None = None
    taken = allowed = 0
    breach: int | None = None
    for index, call in calls_of(episode, tools):
        if call.name not in known:
            continue
        taken += 1
        if procedure.allows(at, call.name):
            allowed += 1
            at = call.name
        elif breach is None:
            breach = index
    ended = at is not None and (not procedure.ends or at in procedure.ends)
    return Adherence(taken, allowed, breach, ended)


def journey_score(
    episode: Episode, expected: Sequence[ToolCall], tools: Sequence[Tool] = ()
) -> float:
    """Return how well the episode covers one expected journey, in [0, 1].

    The score is 0 unless the journey's tools were called exactly in its order; otherwise it is
    the mean share of correct arguments per call. Calls of other tools are ignored.

    Raises:
        InputError: an empty journey.
    """
    if not expected:
        raise InputError("`expected` is empty; pass at least one expected call.")
    names = {call.name for call in expected}
    taken = [call for _, call in calls_of(episode, tools) if call.name in names]
    if [call.name for call in taken] != [call.name for call in expected]:
        return 0.0
    shares = [_correct(call, wanted) for call, wanted in zip(taken, expected, strict=True)]
    return sum(shares) / len(shares)


def paths(procedure: Procedure, limit: int = 10_000) -> list[tuple[str, ...]]:
    """Return every path through a procedure that repeats no step: the scenarios to test.

    Raises:
        InputError: there are more than `limit`.
    """
    found: list[tuple[str, ...]] = []
    pending: list[tuple[str, ...]] = [(step,) for step in sorted(procedure.starts, reverse=True)]
    while pending:
        path = pending.pop()
        onward = sorted(procedure.follows.get(path[-1], frozenset()) - set(path), reverse=True)
        if path[-1] in procedure.ends or (not procedure.ends and not onward):
            found.append(path)
        if len(found) > limit:
            raise InputError(f"The procedure has more than {limit} paths; raise `limit`.")
        pending += [(*path, step) for step in onward]
    return found


def _correct(call: ToolCall, wanted: ToolCall) -> float:
    if not wanted.arguments:
        return 1.0
    correct = sum(
        name in call.arguments and call.arguments[name] == value
        for name, value in wanted.arguments.items()
    )
    return correct / len(wanted.arguments)
