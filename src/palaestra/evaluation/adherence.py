"""Adherence to a procedure: whether an agent took the steps that a policy allows, in its order.

A procedure is a directed graph of named steps, such as the calls of tools in customer
support. Reaching the goal by a forbidden way is no adherence, whatever the outcome says.

Source: Balaji et al. 2026 (JourneyBench): procedures as graphs, and a score of the whole
journey that is 0 where its order is broken. `journey_score` follows the description in the
abstract and in public summaries; the authors' code was not at hand to compare with.
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
    """Which steps may come first, which may follow which, and with which it may end."""

    starts: frozenset[str]
    follows: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ends: frozenset[str] = frozenset()  # empty: with any

    def __post_init__(self) -> None:
        if not self.starts:
            raise InputError("A procedure without a first step cannot be followed; declare one.")
        for name in self.ends:
            if name not in self.steps:
                raise UnknownName("step of the procedure", name, self.steps)

    @property
    def steps(self) -> frozenset[str]:
        """All steps that the procedure knows."""
        return self.starts.union(self.follows, *self.follows.values())

    def allows(self, before: str | None, step: str) -> bool:
        """Whether `step` may follow `before` (None: may come first)."""
        return step in (self.starts if before is None else self.follows.get(before, frozenset()))


@dataclass(frozen=True, slots=True)
class Adherence:
    """How an episode kept to a procedure."""

    taken: int  # steps that the procedure knows
    allowed: int  # of these, how many were allowed where they were taken
    first_breach: int | None  # index of the first forbidden step in `Episode.steps`
    ended: bool  # the last allowed step is one that the procedure may end with

    @property
    def share(self) -> float | None:
        """The share of steps that were allowed; None where none was taken."""
        return self.allowed / self.taken if self.taken else None

    @property
    def kept(self) -> bool:
        """Whether the whole procedure was followed, from a first step to an end."""
        return bool(self.taken) and self.allowed == self.taken and self.ended


def calls_of(episode: Episode, tools: Sequence[Tool] = ()) -> list[tuple[int, ToolCall]]:
    """The tool calls that the environment understood, each with its place in the episode.

    Args:
        episode: where the calls were made.
        tools: those of the environment, by which actions in words are read as calls; without
            them only actions that were recorded as calls are found.
    """
    found: list[tuple[int, ToolCall]] = []
    for step in episode.steps:
        if not step.transition.valid:
            continue
        if step.action.call is not None:
            found.append((step.index, step.action.call))
        elif tools:
            with suppress(NotACall):  # plain words, which are no step of a procedure
                found.append((step.index, parse_call(step.action.text, tools)))
    return found


def adherence(episode: Episode, procedure: Procedure, tools: Sequence[Tool] = ()) -> Adherence:
    """Walk the tool calls of an episode through a procedure.

    Calls that the procedure does not name (looking something up, say) are free at any time.
    A forbidden step does not move the walk on: what follows is judged from where it stood.
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
    """How well the episode covers one expected journey, in [0, 1].

    0 unless the tools of the journey were called in its order, no more and no fewer of them;
    then the mean share of each call's expected arguments that were right. Calls of other
    tools are free.

    Raises:
        InputError: an empty journey.
    """
    if not expected:
        raise InputError("A journey without a step covers nothing; give the calls expected.")
    names = {call.name for call in expected}
    taken = [call for _, call in calls_of(episode, tools) if call.name in names]
    if [call.name for call in taken] != [call.name for call in expected]:
        return 0.0
    shares = [_right(call, wanted) for call, wanted in zip(taken, expected, strict=True)]
    return sum(shares) / len(shares)


def paths(procedure: Procedure, limit: int = 10_000) -> list[tuple[str, ...]]:
    """Every way through a procedure that repeats no step: the scenarios to test it with.

    Raises:
        InputError: there are more than `limit`.
    """
    found: list[tuple[str, ...]] = []
    open_ways: list[tuple[str, ...]] = [(step,) for step in sorted(procedure.starts, reverse=True)]
    while open_ways:
        way = open_ways.pop()
        onward = sorted(procedure.follows.get(way[-1], frozenset()) - set(way), reverse=True)
        if way[-1] in procedure.ends or (not procedure.ends and not onward):
            found.append(way)
        if len(found) > limit:
            raise InputError(f"The procedure has more than {limit} ways through it; give a limit.")
        open_ways += [(*way, step) for step in onward]
    return found


def _right(call: ToolCall, wanted: ToolCall) -> float:
    if not wanted.arguments:
        return 1.0
    right = sum(
        name in call.arguments and call.arguments[name] == value
        for name, value in wanted.arguments.items()
    )
    return right / len(wanted.arguments)
