"""Models that read pages by rule: a follower of references, and an imitator of exemplars.

A follower knows what to do and needs to see it. It gives the reference's gesture if its prompt
shows what that needs, and else gives up. The gesture's target must stand in the prompt, and so must
every value that it types or answers and that is not the goal's but some page's. An answer needs all
that it is made of: of each page that the task has to see, the fact that the goal asks for, or else
the line with the values that are used later. So its success is the most that a model could reach
that reads perfectly. Addresses (`go '…'`) need not be shown. It notes what later gestures need, and
is as good at that as one that knows the future. An imitator knows of a task only what its prompt
shows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache, partial

from page_walks import GROUPS, Seen, Walked, Walkway, target_of

from palaestra.agents.memory.exemplars import HEAD, said
from palaestra.agents.occam import OccamAgent
from palaestra.agents.page_lines import id_of
from palaestra.core.bm25 import scores
from palaestra.core.element_text import flat, is_interactive
from palaestra.core.episode import Key
from palaestra.core.gesture import Gesture, Id, Target, Words
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.core.message import Message
from palaestra.core.model import Renderer
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.environments.wrappers.knobs import wrap
from palaestra.models.local import weights
from palaestra.models.registry import renderer_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

MAP_LABELS = (
    ("people", "Population"), ("rating", "Rating"), ("nearest", "Distance in metres"),
    ("metres", "Distance in metres"), ("km", "Distance in km"), ("phone number", "Phone"),
)  # fmt: skip
"""Words of goals about the map, with the labels of what they ask for."""
_IN_NUMBERS = re.compile(r"(?<=\d),(?=\d)")
_MARKUP = re.compile(r"\[[^\]]*\] \w+|\w+ (?=['\"])|['\"|,;?!=€$%()]|\.(?!\w)")


def plain(text: str) -> str:
    """Return the words of a page's text without ids, roles and marks, between spaces."""
    return f" {' '.join(_MARKUP.sub(' ', _IN_NUMBERS.sub('', text)).split())} ".casefold()


def says(text: str, words: str) -> bool:
    """Return whether a plain text has some words."""
    return plain(words).strip() != "" and plain(words) in text


@cache
def lines_of(page: Seen) -> tuple[str, ...]:
    """Return the lines of a page as words."""
    return tuple(flat(page.elements).split("\n"))


@cache
def page_text(page: Seen) -> str:
    return plain(flat(page.elements))


def values(gesture: Gesture, known: str, pages: Sequence[Seen]) -> tuple[list[str], bool]:
    """Return the parts of what a gesture says that are some page's and not the goal's.

    Also return whether the rest is neither the goal's nor some page's: it was worked out.
    """
    if gesture.kind not in ("type", "select", "answer") or not gesture.text.strip():
        return [], False
    found: list[str] = []
    computed = False
    for part in re.split(r", ", gesture.text) if gesture.kind == "answer" else [gesture.text]:
        if says(known, part):
            continue
        if any(says(page_text(page), part) for page in pages):
            found.append(part)
            continue
        for word in re.findall(r"[\w.:+-]*\d[\w:]*", part):  # the numbers in a sentence
            if not says(known, word):
                on_page = any(says(page_text(page), word) for page in pages)
                found += [word] if on_page else []
                computed |= not on_page
    return found, computed


def evidence(walked: Walked, index: int) -> list[str]:
    """Return the words of a hop's page that its task is made of."""
    page, known = walked.pages[index], plain(walked.goal)
    if not page.is_hop:
        return []
    lines = [plain(line) for line in lines_of(page)]
    for words, label in asked_for():
        if words in walked.goal and plain(label) in lines:
            at = lines.index(plain(label))
            return [" ".join("".join(lines[at : at + 2]).split())]
    later = [read_line(one.gesture) for one in walked.pages[index:]]
    used = [part for one in later for part in values(one, known, [page])[0]]
    having = [(-sum(says(line, part) for part in used), len(line), line) for line in lines]
    count, _, best = min(having, default=(0, 0, ""))
    return [best.strip()] if count < 0 else []


@cache
def asked_for() -> tuple[tuple[str, str], ...]:
    """Return words of goals, each with the label of what they ask for on a page."""
    from palaestra.environments.families.real_sites.atlas.countries import FACTS

    return (*((fact.words, fact.label) for fact in FACTS.values()), *MAP_LABELS)


def has_id(text: str, id: str) -> bool:
    return f"[{id}] " in text or f"['{id}'] " in text


# ── the follower ──────────────────────────────────────────────────────────────


@dataclass
class Follower:
    """A model that gives the reference's gesture if its prompt shows what that needs."""

    way: Walkway
    notes: bool
    renderer: Renderer
    tokens: list[int] = field(default_factory=list)
    lacked: str = ""  # what was not shown when it gave up

    def reply(self, messages: Sequence[Message]) -> str:
        self.tokens.append(len(self.renderer.start(messages)))
        prompt = "\n".join(message.text for message in messages)
        walked, at = self.way.walked, self.way.at
        gesture = read_line(self.way.here.gesture)
        shown, known = plain(prompt), plain(walked.goal)
        said, computed = values(gesture, known, walked.pages[: at + 1])
        if not self._shows_target(gesture, prompt, shown):
            self.lacked = "target"
        elif not all(says(shown, part) for part in said):
            self.lacked = "value"
        elif (computed or gesture.kind == "answer") and not self._has_evidence(shown, at):
            self.lacked = "evidence"
        if self.lacked:
            return "Action: give up"
        return "\n".join([*self._notes(prompt, at), f"Action: {self.way.here.gesture}"])

    def _shows_target(self, gesture: Gesture, prompt: str, shown: str) -> bool:
        target = target_of(gesture, self.way.here.elements)
        if target is None or has_id(prompt, target.id):
            return True
        return not is_interactive(target) and says(shown, target.name)

    def _has_evidence(self, shown: str, at: int) -> bool:
        walked = self.way.walked
        return all(says(shown, line) for i in range(at + 1) for line in evidence(walked, i))

    def _notes(self, prompt: str, at: int) -> list[str]:
        """Return notes of what the present page shows and later gestures need."""
        if not self.notes:
            return []
        walked, known = self.way.walked, plain(self.way.walked.goal)
        page = walked.pages[at]
        head, _, present = prompt.rpartition("\nNow:\n")
        needed = evidence(walked, at)
        for later in walked.pages[at + 1 :]:
            needed += values(read_line(later.gesture), known, [page])[0]
        noted = plain(head.rpartition("Notes:\n")[2])
        present = plain(present)
        new = [one for one in dict.fromkeys(needed) if says(present, one) and not says(noted, one)]
        return [f"Note: {' '.join(plain(one).split())}" for one in new]


# ── the imitator ──────────────────────────────────────────────────────────────


@dataclass
class Imitator:
    """A model that does what an exemplar in its prompt did, with what differs replaced.

    What differs are the words in which the goals differ, and what lines of pages say where the
    exemplar's lines said what it used later; it notes the latter. An element that is called
    otherwise here is the first of the same role. Without an exemplar it clicks on what fits the
    goal best.
    """

    way: Walkway
    renderer: Renderer
    tokens: list[int] = field(default_factory=list)
    lacked: str = ""

    def reply(self, messages: Sequence[Message]) -> str:
        self.tokens.append(len(self.renderer.start(messages)))
        head, prompt = messages[0].text, messages[-1].text
        _, found, told = head.partition(HEAD)
        goal = re.findall(r"^Task: (.*)$", prompt, re.MULTILINE)[0]
        page = prompt.rpartition("Now:\n")[2]
        if not found:
            return f"Action: {self._best_click(page, goal)}"
        steps = re.split(r"^> (.*)$", told, flags=re.MULTILINE)
        shown, actions = steps[::2], steps[1::2]
        at = len(self.tokens) - 1
        if at >= len(actions):
            return "Action: give up"
        old_goal = re.findall(r"^Task: (.*)$", shown[0], re.MULTILINE)[0]
        known = differing(old_goal, goal)
        known |= dict(re.findall(r"^instead of (.*): (.*)$", prompt, re.MULTILINE))
        notes = []
        for old, new in learned(
            shown[at], page, list(filter(None, map(said, actions[at:])))
        ).items():
            if old not in known:
                known[old] = new
                notes.append(f"Note: instead of {old}: {new}")
        gesture = read_line(actions[at])
        text = known.get(gesture.text, gesture.text)
        target = self._target(gesture, known, shown[at], page)
        return "\n".join(
            [*notes, f"Action: {write_line(replace(gesture, text=text, target=target))}"]
        )

    def _target(
        self, gesture: Gesture, known: dict[str, str], shown: str, page: str
    ) -> Target | None:
        if not isinstance(gesture.target, Words):
            return gesture.target
        words = known.get(gesture.target.words, gesture.target.words)
        if f"'{words}'" in page:
            return Words(words)
        role = next((line.split()[1] for line in shown.split("\n") if id_of(line)), "link")
        found = [line for line in page.split("\n") if id_of(line) and line.split()[1] == role]
        return Id(id_of(found[0])) if found else Words(words)

    def _best_click(self, page: str, goal: str) -> str:
        lines = [line for line in page.split("\n") if id_of(line)]
        rated = scores(goal, lines)
        best = max(range(len(lines)), key=lambda at: rated[at])
        return f"click [{id_of(lines[best])}]"


def differing(old: str, new: str) -> dict[str, str]:
    """Return the words of one goal that stand in another one's place."""
    before, after = (re.findall(r"[\w'.-]*\w|\W", text) for text in (old, new))
    matched = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {
        "".join(before[a:b]).strip(): "".join(after[c:d]).strip()
        for kind, a, b, c, d in matched
        if kind == "replace"
    }


def learned(shown: str, page: str, later: Sequence[str]) -> dict[str, str]:
    """Return what a page says in the places where the exemplar's said what it used later."""
    found: dict[str, str] = {}
    lines = [_IN_NUMBERS.sub("", line.strip()) for line in page.split("\n")]
    for text in later:
        for line in map(partial(_IN_NUMBERS.sub, ""), shown.split("\n")):
            before, has, after = line.partition(text)
            before, after = (re.sub(r"(\\\[)[^\]]*\]", r"\1[^\\]]*\]", re.escape(part))
                             for part in (before, after))  # fmt: skip
            fits = [
                match[1] for one in lines if (match := re.fullmatch(f"{before}(.+?){after}", one))
            ]
            if has and len(fits) == 1:
                found.setdefault(text, fits[0])
    return found


# ── episodes ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Result:
    """How a variant did on one task."""

    solved: bool
    done: float  # the share of the reference's gestures
    tokens: tuple[int, ...]
    lacked: str


def follow(walked: Walked, agent: OccamAgent, knobs: dict[str, str]) -> Result:
    """Run an agent with a follower on the pages of a reference's way."""
    way = Walkway(walked)
    return run(way, agent, knobs, Follower(way, "Note" in agent.commands, counter()))


def run(
    way: Walkway, agent: OccamAgent, knobs: dict[str, str], model: Follower | Imitator
) -> Result:
    walked, world = way.walked, LocalEnvironment(wrap(way, knobs))
    task = Task(f"test/{walked.number}", group_of(walked.id), walked.number)
    session = Session(
        Key(walked.id, walked.number), task, world, agent, {"agent": ScriptedModel(model.reply)}
    )
    episode = asyncio.run(session.run())
    assert episode.outcome.scored, episode.outcome
    done = 1.0 if episode.outcome.solved else way.at / len(walked.pages)
    return Result(episode.outcome.solved, done, tuple(model.tokens), model.lacked)


def group_of(id: str) -> str:
    """Return the environment whose episodes share a memory: hops do, of whatever kind."""
    return "sites/world:hops" if id in GROUPS["hops"] else id


@cache
def counter() -> Renderer:
    """Return the renderer of SmolLM2."""
    return renderer_of(weights.prepare("smollm2-135m", print))
