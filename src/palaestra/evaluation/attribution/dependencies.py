"""Dependency tracing: from where an action took its words, back to the root of a failure.

An action's words (the arguments of a call, what stands behind a command's verb) come from an
earlier observation, and that one came from an earlier action: a graph. From the symptom, which
is the last thing that went wrong, the graph is walked backwards; of the actions met on the way,
the root is the one with a word that stands nowhere before it (invented), else one that met a
refusal, else one that took nothing from the task, else the symptom itself.

Reads the record alone, so it works where no world can be replayed; it is a heuristic, and how
often it is right is measured on planted faults. Source: GraphTracer (2025), which walks a graph
of references in traces of several agents.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from palaestra.core.episode import Episode, Step
from palaestra.evaluation.attribution.attribution import Attribution, Ending, role_of

REFUSAL = re.compile(
    r"\b(error|cannot|can't|could not|couldn't|not possible|impossible|no such|not found|unknown"
    r"|invalid|failed|refused|denied|doesn't|does not|don't|wrong|nothing happens)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[\w][\w.@/#:-]*[\w]|\d", re.UNICODE)
STATED = re.compile(r"[\w.@/#:-]*\d[\w.@/#:-]*\b|(?<=[a-z,] )[A-Z]\w+")  # numbers, and names
FILL = frozenset("a an and at by for from in into is it my of on or that the this to with".split())
COMMON = 0.5  # a word in more than this share of an episode's actions is part of the language


@dataclass(frozen=True, slots=True)
class Source:
    """One word of an action, and the latest observation before it that holds the word."""

    word: str
    observation: int | None  # 0 is the first one, k what turn k - 1 showed; None: invented


@dataclass(frozen=True, slots=True)
class Trace:
    """Where the words of all actions came from."""

    sources: tuple[tuple[Source, ...], ...]  # per turn
    refused: frozenset[int]  # turns that met a refusal, or were not understood

    def parents(self, turn: int) -> list[int]:
        """The turns whose observations this one used, latest first.

        A turn that says nothing of its own ("finish") rests on the latest one that did.
        """
        if not self.sources[turn]:
            spoke = (t for t in range(turn - 1, -1, -1) if self.sources[t])
            return list(islice(spoke, 1))
        seen = {s.observation - 1 for s in self.sources[turn] if s.observation}
        return sorted(seen, reverse=True)

    def invented(self, turn: int) -> list[str]:
        """Its words that stood nowhere before."""
        return [source.word for source in self.sources[turn] if source.observation is None]


def trace(episode: Episode, language: str = "") -> Trace:
    """The graph of one episode.

    Args:
        episode: the record.
        language: how the world explains itself, where that is not in the record: words of it are
            never invented.
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


def grounded(episode: Episode, said: Trace) -> list[bool]:
    """Of each turn, whether the names and numbers of its action had been seen or told before.

    Where actions are calls of tools, all others are words to somebody: of these only what must
    come from somewhere is looked at, numbers and names, and not the words around them.
    """
    talks = any(step.action.call is not None for step in episode.steps)
    found = []
    for step in episode.steps:
        new = said.invented(step.index)
        if talks and step.action.call is None:
            stated = {word.lower() for word in STATED.findall(step.action.text)}
            new = [word for word in new if word in stated]
        found.append(not new)
    return found


def root_cause(episode: Episode, language: str = "") -> Attribution:
    """The turn that the walk ends at; unknown for an episode without turns. See `trace`."""
    if not episode.steps:
        return Attribution("words", Ending.UNKNOWN, None, False, "the episode has no turns")
    graph = trace(episode, language)
    symptom = max(graph.refused, default=len(episode.steps) - 1)
    if episode.steps[-1].transition.terminated:
        symptom = len(episode.steps) - 1  # the world itself said that this was the end
    met = _walk(graph, symptom)
    turn = min(met, key=lambda t: (-_suspicion(graph, t), t))
    if not _suspicion(graph, turn):
        turn = symptom  # nothing on the way is worse than what was noticed
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
    """A baseline: the last turn."""
    turn = len(episode.steps) - 1
    return Attribution("last", Ending.TURN, turn, False, "the last turn")


def first_refusal(episode: Episode) -> Attribution:
    """A baseline: the first turn that met a refusal, else the last one."""
    graph = trace(episode)
    turn = min(graph.refused, default=len(episode.steps) - 1)
    return Attribution("refusal", Ending.TURN, turn, False, "the first refusal, else the last turn")


def ignored(episode: Episode) -> list[str]:
    """Names and numbers of the task that no action used: information that was lost on the way."""
    graph = trace(episode)
    used = {source.word for of in graph.sources for source in of}
    text = _first(episode)
    marked = {w.lower() for w in WORD.findall(text) if any(map(str.isdigit, w)) or w[:1].isupper()}
    starts = {w.lower() for w in re.findall(r"(?:^|[.!?:]\s+|\n)(\w+)", text)}  # only begin a line
    spoken = {word for step in episode.steps for word in _words(step.action.text)}
    return sorted(marked - starts - used - spoken - FILL)


# ── details ──────────────────────────────────────────────────────────────────


def _walk(graph: Trace, symptom: int) -> set[int]:
    met, waiting = {symptom}, [symptom]
    while waiting:
        for parent in graph.parents(waiting.pop()):
            if parent not in met:
                met.add(parent)
                waiting.append(parent)
    return met


def _suspicion(graph: Trace, turn: int) -> int:
    if graph.invented(turn):
        return 3
    if turn in graph.refused:
        return 2
    taken = graph.sources[turn]
    return int(bool(taken) and all(source.observation != 0 for source in taken))


def _reason(graph: Trace, turn: int, symptom: int) -> str:
    if words := graph.invented(turn):
        why = f"{', '.join(map(repr, words[:3]))} stands nowhere before it"
    elif turn in graph.refused:
        why = "it met a refusal"
    elif graph.sources[turn]:
        shown = sorted({s.observation for s in graph.sources[turn] if s.observation is not None})
        why = f"its words come from observation {', '.join(map(str, shown))}"
    else:
        why = "it is the symptom itself; nothing before it was used"
    return why if turn == symptom else f"{why}; turn {symptom + 1}, which went wrong, rests on it"


def _instructions(episode: Episode) -> str:
    """What models were told before anything happened."""
    roots = [call for call in episode.calls if call.parent is None]
    return "\n".join(m.content for call in roots for m in call.messages if m.role == "system")


def _first(episode: Episode) -> str:
    seen = episode.observation.text if episode.observation else ""
    return f"{episode.task.instruction}\n{seen}"


def _arguments(step: Step) -> list[str]:
    """What an action says beyond its verb."""
    call = step.action.call
    if call is not None:
        return [w for value in call.arguments.values() for w in _listed(json.dumps(value))]
    words = _listed(step.action.text)
    called = re.match(r"\s*[\w.]+\s*\(", step.action.text)
    return words[1:] if called or len(words) > 1 else words


def _listed(text: str) -> list[str]:
    return [w for word in WORD.findall(text) if (w := word.lower()) not in FILL]


def _words(text: str) -> set[str]:
    """All words of a text, and the parts of those that are joined."""
    found = set(_listed(text))
    return found | {part for word in found for part in re.split(r"[.@/#:-]", word) if part}
