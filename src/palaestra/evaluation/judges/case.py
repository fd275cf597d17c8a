"""A case: what a judge may read of an episode, and nothing that gives the truth away.

A judge sees what the agent saw, said and did. It never sees rewards, success or how the
episode was scored: agreement with the truth would then say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from palaestra.core.episode import Episode

FILLER = (
    "I have thought about this carefully, and I go on with the task step by step, as was asked, "
    "paying attention to everything that was said before."
)
"""Words without content, for the probe of length."""

CUT = "\n[… {} turns are left out …]\n"


@dataclass(frozen=True, slots=True)
class Line:
    """One turn as a judge reads it."""

    said: str  # the agent's words around its action, such as a thought; empty without any
    did: str  # the action
    seen: str  # what came of it


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a probe of the finished world showed."""

    probe: str  # the action
    seen: str
    changed: bool | None = False  # whether it changed the state; None: the world does not tell


@dataclass(frozen=True, slots=True)
class Case:
    """An episode before a judge."""

    episode: Episode
    task: str  # the instruction, and what was seen first
    lines: tuple[Line, ...]
    evidence: tuple[Evidence, ...] = ()
    author: str = ""  # who is said to have acted; empty: nobody is named

    @property
    def words(self) -> int:
        """How long the account of the turns is."""
        return sum(len(f"{line.said} {line.did} {line.seen}".split()) for line in self.lines)


def case_of(episode: Episode) -> Case:
    """The case that an episode makes."""
    first = episode.observation.text if episode.observation else ""
    task = "\n".join(part for part in (episode.task.instruction, first) if part)
    replies = {call.index: call.reply.content.strip() for call in episode.calls}
    lines = []
    for step in episode.steps:
        did = str(step.action.call) if step.action.call is not None else step.action.text
        reply = replies.get(step.call, "") if step.call is not None else ""
        said = "" if reply == did.strip() else reply
        lines.append(Line(said, did, step.transition.observation.text))
    return Case(episode, task, tuple(lines))


def authors(episode: Episode) -> set[str]:
    """The models that chose the episode's actions."""
    return {episode.calls[step.call].policy for step in episode.steps if step.call is not None}


def padded(case: Case) -> Case:
    """The same case in more words: each turn of the agent says FILLER as well."""
    lines = tuple(replace(x, said=f"{x.said}\n{FILLER}".strip()) for x in case.lines)
    return replace(case, lines=lines)


def shortened(case: Case) -> Case:
    """The same case in fewer words: what the agent said around its actions is left out."""
    return replace(case, lines=tuple(replace(line, said="") for line in case.lines))


def told(case: Case, longest: int) -> str:
    """The case as text of about `longest` characters: turns in its middle are left out first."""
    head = f"Task:\n{case.task}\n"
    if case.author:
        head = f"Author of the actions: {case.author}\n{head}"
    turns = [_turn(number, line) for number, line in enumerate(case.lines, 1)]
    tail = "".join(f"Checked afterwards: {e.probe}\nShown: {e.seen}\n" for e in case.evidence)
    room = longest - len(head) - len(tail)
    first, last = _kept([len(turn) for turn in turns], room)
    if first + last < len(turns):
        cut = CUT.format(len(turns) - first - last)
        turns = [*turns[:first], cut, *turns[len(turns) - last :]]
    return f"{head}{''.join(turns)}{tail}"


def _turn(number: int, line: Line) -> str:
    said = f"Agent, turn {number}, says: {line.said}\n" if line.said else ""
    return f"{said}Agent, turn {number}: {line.did}\nWorld: {line.seen}\n"


def _kept(lengths: list[int], room: int) -> tuple[int, int]:
    """How many turns of the beginning and of the end fit; the last one always stays."""
    if sum(lengths) <= room or not lengths:
        return len(lengths), 0
    first, last, left = 0, 1, room - lengths[-1]
    while first + last < len(lengths):
        at_the_end = last <= first
        size = lengths[-last - 1] if at_the_end else lengths[first]
        if size > left:
            break
        left -= size
        first, last = (first, last + 1) if at_the_end else (first + 1, last)
    return first, last
