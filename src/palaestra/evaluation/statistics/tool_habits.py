"""Habits of an agent that calls tools, as LOOP reports them (Chen et al. 2025).

How often it passes values that nobody gave it, how often it ends well after an error, how many
calls it makes, and whether it reads the documentation of an API before it calls it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Step
from palaestra.core.message import ToolCall
from palaestra.evaluation.statistics.intervals import Interval, mean_interval, wilson

READ, CALLED = "read_api", "call"  # tools that read documentation, and that call what it describes
SHORT = 3  # characters of a text that is too short to have been given or invented


@dataclass(frozen=True, slots=True)
class ToolHabits:
    """Habits over the episodes of a phase; None where nothing could show it."""

    episodes: int
    calls: Interval | None  # of tools, per episode
    invented: Interval | None  # share of values in arguments that the agent had not been given
    refused: Interval | None  # share of episodes with an action that was refused
    recovered: Interval | None  # share of these that were solved all the same
    informed: Interval | None  # share of APIs whose documentation was read before their first call


def tool_habits(episodes: Iterable[Episode]) -> ToolHabits:
    """Return the habits of an agent in episodes that have a valid result."""
    calls: list[float] = []
    given: list[bool] = []
    troubled: list[bool] = []
    informed: list[bool] = []
    count = 0
    for episode in episodes:
        if not episode.outcome.scored:
            continue
        count += 1
        made = [call for step in episode.steps if (call := _call(step.action)) is not None]
        calls.append(len(made))
        given += values_given(episode)
        informed += _documented(made)
        if any(map(_refused, episode.steps)):
            troubled.append(episode.outcome.solved)
    return ToolHabits(
        count,
        mean_interval(calls) if len(calls) > 1 else None,
        wilson(given.count(False), len(given)) if given else None,
        wilson(len(troubled), count) if count else None,
        wilson(sum(troubled), len(troubled)) if troubled else None,
        wilson(sum(informed), len(informed)) if informed else None,
    )


def values_given(episode: Episode) -> list[bool]:
    """Return for each value in the arguments of its calls whether the agent had seen it before.

    A value was given if it occurs, in any case of letters, in the task or in an observation before
    the call. Truth values, texts of less than three characters and those of several words, which an
    agent may word itself, cannot tell.
    """
    seen = episode.observation.text.casefold() if episode.observation else ""
    found = []
    for step in episode.steps:
        if (call := _call(step.action)) is not None:
            found += [_plain(value) in seen for value in _values(call.arguments) if _tells(value)]
        seen += "\n" + step.transition.observation.text.casefold()
    return found


def _documented(calls: Sequence[ToolCall]) -> list[bool]:
    """Return for each API that was called by its name whether it had been read about before."""
    read: set[str] = set()
    first: dict[str, bool] = {}
    for call in calls:
        api = str(call.arguments.get("api", ""))
        if call.name == READ:
            read.add(api)
        elif call.name == CALLED:
            first.setdefault(api, api in read)
    return list(first.values())


def _call(action: Action) -> ToolCall | None:
    """Return the call that an action is, or is written as; positional arguments have no names."""
    if action.call is not None:
        return action.call
    try:
        found = ast.parse(action.text.strip(), mode="eval").body
        if not isinstance(found, ast.Call):
            return None
        given = {str(at): ast.literal_eval(value) for at, value in enumerate(found.args)}
        given |= {word.arg or "": ast.literal_eval(word.value) for word in found.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return ToolCall(ast.unparse(found.func), given)


def _refused(step: Step) -> bool:
    """Return whether an action was not understood, or answered with an error."""
    return not step.transition.valid or step.transition.observation.text.startswith('{"error"')


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _values(inner)
    else:
        yield value


def _tells(value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    return isinstance(value, (int, float)) or (len(value) >= SHORT and " " not in value)


def _plain(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value).removesuffix(".0")).casefold()
