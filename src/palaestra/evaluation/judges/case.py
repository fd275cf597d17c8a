"""A case: the part of an episode that a judge may read, without anything that reveals the truth.

A judge sees the agent's observations, words and actions. It never sees rewards, success or the
episode's score: its agreement with the truth would then mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from palaestra.core.episode import Episode
from palaestra.core.model import without_adapter

FILLER = (
    "I have thought about this carefully, and I go on with the task step by step, as was asked, "
    "paying attention to everything that was said before."
)
"""Words without content, for the length probe."""

CUT = "\n[… {} turns are left out …]\n"


@dataclass(frozen=True, slots=True)
class CaseTurn:
    """One turn as a judge reads it."""

    words: str  # the agent's words around its action, such as a thought; empty without any
    action: str
    observation: str  # after the action


@dataclass(frozen=True, slots=True)
class Evidence:
    """The observation of one probe of the finished environment."""

    probe: str  # the action
    seen: str
    changed: bool | None = False  # whether it changed the state; None: no state key to compare


@dataclass(frozen=True, slots=True)
class Case:
    """An episode in the form that a judge reads."""

    episode: Episode
    task: str  # the instruction and the first observation
    turns: tuple[CaseTurn, ...]
    evidence: tuple[Evidence, ...] = ()
    author: str = ""  # the model to name as author; empty: none is named

    @property
    def words(self) -> int:
        """The number of words in the turns."""
        return sum(len(f"{t.words} {t.action} {t.observation}".split()) for t in self.turns)


def case_of(episode: Episode) -> Case:
    """Return the case of an episode."""
    first = episode.observation.text if episode.observation else ""
    task = "\n".join(part for part in (episode.task.instruction, first) if part)
    replies = {call.index: call.reply.text.strip() for call in episode.calls}
    turns = []
    for step in episode.steps:
        action = str(step.action.call) if step.action.call is not None else step.action.text
        reply = replies.get(step.call, "") if step.call is not None else ""
        words = "" if reply == action.strip() else reply
        turns.append(CaseTurn(words, action, step.transition.observation.text))
    return Case(episode, task, tuple(turns))


def authors(episode: Episode) -> set[str]:
    """Return the models that chose the episode's actions."""
    calls = (step.call for step in episode.steps if step.call is not None)
    return {without_adapter(episode.calls[call].policy) for call in calls}


def padded(case: Case) -> Case:
    """Return the case with FILLER added to each turn of the agent."""
    turns = tuple(replace(t, words=f"{t.words}\n{FILLER}".strip()) for t in case.turns)
    return replace(case, turns=turns)


def shortened(case: Case) -> Case:
    """Return the case without the agent's words around its actions."""
    return replace(case, turns=tuple(replace(turn, words="") for turn in case.turns))


def render_case(case: Case, longest: int) -> str:
    """Render the case as text of about `longest` characters; middle turns are dropped first."""
    head = f"Task:\n{case.task}\n"
    if case.author:
        head = f"Author of the actions: {case.author}\n{head}"
    turns = [_render_turn(number, turn) for number, turn in enumerate(case.turns, 1)]
    tail = "".join(map(_render_evidence, case.evidence))
    room = longest - len(head) - len(tail)
    first, last = _fitting([len(turn) for turn in turns], room)
    if first + last < len(turns):
        cut = CUT.format(len(turns) - first - last)
        turns = [*turns[:first], cut, *turns[len(turns) - last :]]
    return f"{head}{''.join(turns)}{tail}"


def render_windows(case: Case, longest: int, overlap: int) -> list[str]:
    """Render the case as overlapping texts that leave out no turn.

    Args:
        case: an episode.
        longest: of each text, about; one of a single long turn may be longer.
        overlap: turns that a text repeats of the one before, as far as they leave room for another.

    Returns:
        at least one text; the last one has the evidence.
    """
    turns = [_render_turn(number, turn) for number, turn in enumerate(case.turns, 1)]
    bounds, first = [], 0
    while True:
        end, size = first, 0
        while end < len(turns) and (end == first or size + len(turns[end]) <= longest):
            size += len(turns[end])
            end += 1
        bounds.append((first, end))
        if end >= len(turns):
            break
        # The repeated turns and the next new one must fit, so that each window brings something.
        first = end
        while first > end - overlap and first > bounds[-1][0] + 1:
            if sum(map(len, turns[first - 1 : end + 1])) > longest:
                break
            first -= 1
    head = replace(case, turns=(), evidence=())
    texts = []
    for number, (first, end) in enumerate(bounds, 1):
        part = f"Part {number} of {len(bounds)} of the record:\n{''.join(turns[first:end])}"
        texts.append(render_case(head, longest) + part)
    texts[-1] += "".join(map(_render_evidence, case.evidence))
    return texts


def _render_evidence(evidence: Evidence) -> str:
    return f"Checked afterwards: {evidence.probe}\nShown: {evidence.seen}\n"


def _render_turn(number: int, turn: CaseTurn) -> str:
    words = f"Agent, turn {number}, says: {turn.words}\n" if turn.words else ""
    return f"{words}Agent, turn {number}: {turn.action}\nWorld: {turn.observation}\n"


def _fitting(lengths: list[int], room: int) -> tuple[int, int]:
    """Return how many turns of the beginning and of the end fit; the last one always stays."""
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
