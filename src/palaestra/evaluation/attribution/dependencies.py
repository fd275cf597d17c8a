"""Dependency tracing: from the words of an action back to the root cause of a failure.

An action's words (the arguments of a call, the words after a command's verb) come from an
earlier observation, and that observation came from an earlier action: a graph. The walk starts
at the symptom, which is the last turn that went wrong, and goes backwards. Among the actions it
visits, the root cause is the one with a word that occurs nowhere before it (invented), else one
that was refused, else one that used nothing of the task, else the symptom itself.

The method reads only the record, so it works without replaying the environment. It is a
heuristic; its accuracy is measured on planted faults. Source: GraphTracer (2025), which walks a
graph of references in multi-agent traces.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from palaestra.core.episode import Episode, Step
from palaestra.evaluation.attribution.base import Attribution, Ending, role_of

REFUSAL = re.compile(
    r"\b(error|cannot|can't|could not|couldn't|not possible|impossible|no such|not found|unknown"
    r"|invalid|failed|refused|denied|doesn't|does not|don't|wrong|nothing happens)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[\w][\w.@/#:-]*[\w]|\d", re.UNICODE)
STATED = re.compile(r"[\w.@/#:-]*\d[\w.@/#:-]*\b|(?<=[a-z,] )[A-Z]\w+")  # numbers, and names
FILL = frozenset("a an and at by for from in into is it my of on or that the this to with".split())
COMMON = 0.5  # a word in more than this share of an episode's actions belongs to the syntax


@dataclass(frozen=True, slots=True)
class Source:
    """One word of an action, and the latest earlier observation that contains the word."""

    word: str
    observation: int | None  # 0 is the first one, k the one after turn k - 1; None: invented


@dataclass(frozen=True, slots=True)
class Trace:
    """The dependency graph of an episode: where the words of its actions came from."""

    sources: tuple[tuple[Source, ...], ...]  # per turn
    refused: frozenset[int]  # turns that were refused or invalid

    def parents(self, turn: int) -> list[int]:
        """Return the turns whose observations this one used, latest first.

        A turn without words of its own ("finish") depends on the latest turn with some.
        """
        if not self.sources[turn]:
            spoke = (t for t in range(turn - 1, -1, -1) if self.sources[t])
            return list(islice(spoke, 1))
        seen = {s.observation - 1 for s in self.sources[turn] if s.observation}
        return sorted(seen, reverse=True)

    def invented(self, turn: int) -> list[str]:
        """Return the words of a turn that occur nowhere before it."""
        return [source.word for source in self.sources[turn] if source.observation is None]


def trace(episode: Episode, language: str = "") -> Trace:
    """Build the dependency graph of one episode.

    Args:
        episode: the record.
        language: the environment's own instructions, if the record does not contain them; their
            words never count as invented.
    """
    known = _words(f"{language}\n{_instructions(episode)}")
    seen = [_words(_first(episode))]
    seen += [_words(step.transition.observation.text) for step in episode.steps]
    used = [_arguments(step) for step in episode.steps]
    often = Counter(word for words in used for word in set(words))
    many = max(2.0, COMMON * len(used))
    sources = []
    for turn, words in enumerate(used):
        found = []
        for word in dict.fromkeys(words):
            if often[word] > many:
                continue
            place = next((k for k in range(turn, -1, -1) if word in seen[k]), None)
            if place is not None or word not in known:
                found.append(Source(word, place))
        sources.append(tuple(found))
    refused = frozenset(
        step.index
        for step in episode.steps
        if not step.transition.valid or REFUSAL.search(step.transition.observation.text)
    )
    return Trace(tuple(sources), refused)


def grounded(episode: Episode, graph: Trace) -> list[bool]:
    """Return, for each turn, whether the names and numbers of its action occurred before.

    If some actions are tool calls, all others are messages to a user. Of a message only numbers
    and names are checked, since they must have a source.
    """
    talks = any(step.action.call is not None for step in episode.steps)
    found = []
    for step in episode.steps:
        new = graph.invented(step.index)
        if talks and step.action.call is None:
            stated = {word.lower() for word in STATED.findall(step.action.text)}
            new = [word for word in new if word in stated]
        found.append(not new)
    return found


def root_cause(episode: Episode, language: str = "") -> Attribution:
    """Return the turn that the walk ends at; unknown for an episode without turns. See `trace`."""
    if not episode.steps:
        return Attribution("words", Ending.UNKNOWN, None, False, "the episode has no turns")
    graph = trace(episode, language)
    symptom = max(graph.refused, default=len(episode.steps) - 1)
    if episode.steps[-1].transition.terminated:
        symptom = len(episode.steps) - 1  # the environment itself terminated here
    visited = _walk(graph, symptom)
    turn = min(visited, key=lambda t: (-_suspicion(graph, t), t))
    if not _suspicion(graph, turn):
        turn = symptom  # no visited turn is more suspicious than the symptom
    sources = tuple(
        sorted({s.observation for s in graph.sources[turn] if s.observation is not None})
    )
    return Attribution(
        "words",
        Ending.TURN,
        turn,
        False,
        _reason(graph, turn, symptom),
        role_of(episode, turn),
        sources,
        tuple(float(_suspicion(graph, t)) for t in range(len(episode.steps))),
    )


def last_turn(episode: Episode) -> Attribution:
    """Return the last turn: a baseline."""
    turn = len(episode.steps) - 1
    return Attribution("last", Ending.TURN, turn, False, "the last turn")


def first_refusal(episode: Episode) -> Attribution:
    """Return the first turn that was refused, else the last one: a baseline."""
    graph = trace(episode)
    turn = min(graph.refused, default=len(episode.steps) - 1)
    return Attribution("refusal", Ending.TURN, turn, False, "the first refusal, else the last turn")


def ignored(episode: Episode) -> list[str]:
    """Return the names and numbers of the task that no action used: information that was lost."""
    graph = trace(episode)
    used = {source.word for of in graph.sources for source in of}
    text = _first(episode)
    marked = {w.lower() for w in WORD.findall(text) if any(map(str.isdigit, w)) or w[:1].isupper()}
    starts = {w.lower() for w in re.findall(r"(?:^|[.!?:]\s+|\n)(\w+)", text)}  # only begin a line
    spoken = {word for step in episode.steps for word in _words(step.action.text)}
    return sorted(marked - starts - used - spoken - FILL)


# ── details ──────────────────────────────────────────────────────────────────


def _walk(graph: Trace, symptom: int) -> set[int]:
    visited, waiting = {symptom}, [symptom]
    while waiting:
        for parent in graph.parents(waiting.pop()):
            if parent not in visited:
                visited.add(parent)
                waiting.append(parent)
    return visited


def _suspicion(graph: Trace, turn: int) -> int:
    if graph.invented(turn):
        return 3
    if turn in graph.refused:
        return 2
    taken = graph.sources[turn]
    return int(bool(taken) and all(source.observation != 0 for source in taken))


def _reason(graph: Trace, turn: int, symptom: int) -> str:
    if words := graph.invented(turn):
        why = f"{', '.join(map(repr, words[:3]))} occurs nowhere before it"
    elif turn in graph.refused:
        why = "it was refused"
    elif graph.sources[turn]:
        shown = sorted({s.observation for s in graph.sources[turn] if s.observation is not None})
        why = f"its words come from observation {', '.join(map(str, shown))}"
    else:
        why = "it is the symptom itself; nothing before it was used"
    return why if turn == symptom else f"{why}; turn {symptom + 1}, which went wrong, depends on it"


def _instructions(episode: Episode) -> str:
    """Return the system prompts of all root calls."""
    roots = [call for call in episode.calls if call.parent is None]
    return "\n".join(m.text for call in roots for m in call.messages if m.role == "system")


def _first(episode: Episode) -> str:
    seen = episode.observation.text if episode.observation else ""
    return f"{episode.task.instruction}\n{seen}"


def _arguments(step: Step) -> list[str]:
    """Return the words of an action after its verb."""
    call = step.action.call
    if call is not None:
        return [w for value in call.arguments.values() for w in _listed(json.dumps(value))]
    words = _listed(step.action.text)
    called = re.match(r"\s*[\w.]+\s*\(", step.action.text)
    return words[1:] if called or len(words) > 1 else words


def _listed(text: str) -> list[str]:
    return [w for word in WORD.findall(text) if (w := word.lower()) not in FILL]


def _words(text: str) -> set[str]:
    """Return all words of a text, and the parts of compound words."""
    found = set(_listed(text))
    return found | {part for word in found for part in re.split(r"[.@/#:-]", word) if part}
