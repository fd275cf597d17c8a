"""What an agent reads of pages, and what it may forget: the study of docs/results/web.md.

    python scripts/pages_study.py walk FILE [--tasks N]        # needs the browser and the sites
    python scripts/pages_study.py fit FILE                     # of walks with --split train
    python scripts/pages_study.py views FILE [--embeddings]
    python scripts/pages_study.py notes FILE
    python scripts/pages_study.py replays FILE

`walk` follows the references of held-out tasks in the real browser and stores all pages on the way.
The others replay these pages under variants of the agent `occam`, without a browser. At each step
the model is a follower: it gives the reference's gesture if its prompt shows what that needs, and
else gives up. The gesture's target must stand in the prompt, and so must every value that it types
or answers and that is not the goal's but some page's. An answer needs all that it is made of: of
each page that the task has to see, the fact that the goal asks for, or else the line with the
values that are used later. So the success is the most that a model could reach that reads
perfectly. Addresses (`go '…'`) need not be shown. Where notes are on, the follower notes what later
gestures need; it is as good at that as one that knows the future.

`views` toggles each adapter. `notes` has the chores by tag, with and without a notepad.
`replays` has the hops with and without a solved episode of the same kind in the prompt: there the
model is an imitator, which knows of the task only what the exemplar shows (`Imitator`).
Tokens are those of SmolLM2, per step, of the whole prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache, partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from palaestra.agents.line_ranking import FEATURES, features
from palaestra.agents.memory.exemplars import HEAD, said
from palaestra.agents.occam import OccamAgent
from palaestra.agents.page_lines import id_of
from palaestra.agents.registry import make_agent
from palaestra.core.bm25 import scores
from palaestra.core.element import Element
from palaestra.core.element_compaction import merged, with_tables
from palaestra.core.element_text import flat, is_interactive, tree
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Target, Words
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.core.gestures.locating import element_of
from palaestra.core.message import Message
from palaestra.core.model import Renderer
from palaestra.core.rare_capabilities import Elemental, caption_of, elements_of
from palaestra.core.session import Session
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.wrappers.knobs import wrap
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.models.local import weights
from palaestra.models.registry import renderer_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment

SITES = ("shop-easy", "shop-medium", "forum-easy", "forum-medium", "cms-easy", "cms-medium")
TAGS = ("massive-memory", "calculation", "long-term-memory", "facts")
HOPS = ("capital-on-map", "larger-capital", "mail-a-fact", "capital-of-a-saved-country")
GROUPS = {
    "sites": tuple(f"sites/{name}" for name in SITES),
    "chores": tuple(f"sites/world:{tag}" for tag in TAGS),
    "hops": tuple(f"sites/world:{name}" for name in HOPS),
    "miniwob": ("miniwob/basic",),
}
MAP_LABELS = (
    ("people", "Population"), ("rating", "Rating"), ("nearest", "Distance in metres"),
    ("metres", "Distance in metres"), ("km", "Distance in km"), ("phone number", "Phone"),
)  # fmt: skip
"""Words of goals about the map, with the labels of what they ask for."""

OCCAM = {"observation": "tree,merged,tables", "gestures": "click,type,select,go,back"}
PLAIN = "steps=12&plans=false&notes=false&pivotal=false"
LONGEST = 60  # gestures of a reference


@dataclass(frozen=True)
class Seen:
    """A page of a reference's way, and the gesture there."""

    caption: str
    elements: tuple[Element, ...]
    gesture: str
    is_hop: bool  # one of the pages that have to be seen


@dataclass(frozen=True)
class Walked:
    """A reference that was followed to the end."""

    id: str
    number: int
    instructions: str
    pages: tuple[Seen, ...]

    @property
    def goal(self) -> str:
        return self.pages[0].caption


# ── walking ──────────────────────────────────────────────────────────────────


def walk(id: str, number: int, split: Split = Split.TEST) -> Walked | None:
    """Follow the reference of a task; None if it did not solve it."""
    environment = registry.make(id)
    task = registry.tasks(id).task(split, number)
    try:
        observation, pages = environment.reset(task), list[Seen]()
        hops = hops_of(id, task)
        while len(pages) < LONGEST and (plan := environment.oracle()):
            caption = caption_of(environment)
            address = observation.text.removeprefix(caption).strip().partition("\n")[0]
            found = tuple(elements_of(environment))
            pages.append(Seen(caption, found, plan[0].text, address in hops))
            step = environment.step(plan[0])
            observation = step.observation
            if step.terminated:
                whole = Walked(id, number, environment.instructions, tuple(pages))
                return whole if step.success else None
    finally:
        environment.close()
    return None


def hops_of(id: str, task: Task) -> tuple[str, ...]:
    """Return the addresses that a task's reference has to see."""
    family, _, name = id.partition("/")
    if family != "sites":
        return ()
    from palaestra.environments.families.real_sites.environment import drawn

    return drawn(name, task.seed).task.hops


class Walkway(Environment, Elemental, capabilities={"elements", "oracle"}):
    """The pages of a reference's way; any other gesture ends the episode."""

    def __init__(self, walked: Walked) -> None:
        super().__init__()
        self.walked, self.at = walked, 0

    @property
    def instructions(self) -> str:
        return self.walked.instructions

    @property
    def here(self) -> Seen:
        return self.walked.pages[self.at]

    def reset(self, task: Task) -> Observation:
        self.at = 0
        return Observation(self.here.caption)

    def step(self, action: Action) -> Transition:
        if not self._is_the_way(action):
            return Transition(Observation("That is not the way."), terminated=True)
        if self.at == len(self.walked.pages) - 1:
            return Transition(Observation("Solved."), 1.0, terminated=True, success=True)
        self.at += 1
        return Transition(Observation(self.here.caption))

    def _is_the_way(self, action: Action) -> bool:
        """Return whether an action is the reference's, whatever it calls the same element."""
        one, other = read_line(action.text), read_line(self.here.gesture)
        targets = [target_of(gesture, self.here.elements) for gesture in (one, other)]
        known = targets[0] is not None and targets[0] == targets[1]
        return one == other or (known and replace(one, target=other.target) == other)

    def elements(self) -> Sequence[Element]:
        return self.here.elements

    def caption(self) -> str:
        return self.here.caption

    def oracle(self) -> Sequence[Action]:
        return [Action(page.gesture) for page in self.walked.pages[self.at :]]


# ── what a gesture needs ─────────────────────────────────────────────────────

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


def target_of(gesture: Gesture, elements: Sequence[Element]) -> Element | None:
    """Return the element that a gesture is about; None: it has no target, or a point."""
    try:
        return None if gesture.target is None else element_of(gesture.target, elements)
    except InputError:
        return None


def has_id(text: str, id: str) -> bool:
    return f"[{id}] " in text or f"['{id}'] " in text


# ── the follower ─────────────────────────────────────────────────────────────


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


# ── the imitator ─────────────────────────────────────────────────────────────


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


# ── tables ───────────────────────────────────────────────────────────────────


def row(name: str, found: Sequence[Result]) -> str:
    interval = wilson(sum(one.solved for one in found), len(found))
    tokens = [count for one in found for count in one.tokens]
    lacked = [one.lacked for one in found]
    reasons = " | ".join(str(lacked.count(what)) for what in ("target", "value", "evidence"))
    shares = (mean(one.solved for one in found), interval.low, interval.high)
    rate = "{:.0f} [{:.0f}, {:.0f}]".format(*(100 * share for share in shares))
    return f"| {name} | {mean(tokens):,.0f} | {max(tokens):,} | {rate} | {reasons} |"


def table(
    title: str, rows: Sequence[tuple[str, str, dict[str, str]]], walks: Sequence[Walked]
) -> None:
    """Print what each variant needs and reaches; a variant is a name, an agent, and knobs."""
    print(
        f"\n{title}: {len(walks)} tasks, {mean(len(one.pages) for one in walks):.1f} steps each\n"
    )
    print("| variant | tokens a step | most | success, % | no target | no value | no evidence |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for name, agent, knobs in rows:
        print(row(name, [follow(one, occam(agent), knobs) for one in walks]), flush=True)


def views(walks: Sequence[Walked], embeddings: bool) -> None:
    """Print the effect of each adapter, on sites and on MiniWoB."""
    page = OCCAM["observation"]
    rows: list[tuple[str, str, dict[str, str]]] = [
        ("none of them", f"occam?{PLAIN}", {"observation": "tree"}),
        ("occam", "occam", OCCAM),
        ("without merged texts", "occam", OCCAM | {"observation": "tree,tables"}),
        ("without tables as Markdown", "occam", OCCAM | {"observation": "tree,merged"}),
        ("with all gestures", "occam", {"observation": page}),
        ("whole pages in the history", "occam?pivotal=false", OCCAM),
        ("without notes", "occam?notes=false", OCCAM),
        ("without plans", "occam?plans=false", OCCAM),
        ("words without the tree", "occam", OCCAM | {"observation": "text,merged,tables"}),
        ("only what is new", "occam", OCCAM | {"observation": "changes,merged,tables"}),
    ]
    by = ("words", "trained", *(("embeddings", "both") if embeddings else ()))
    rows += [
        (f"the best {top} lines by {name}", f"occam?ranked={name}&top={top}", OCCAM)
        for name in by
        for top in (40, 20, 10)
    ]
    for group in ("sites", "miniwob"):
        table(group, rows, [one for one in walks if one.id in GROUPS[group]])


def fit(walks: Sequence[Walked]) -> None:
    """Print the weights of `agents/line_ranking.py`, fitted to these walks.

    Right lines of a page are that of the gesture's target, and those with values used later. The
    log-likelihood of the right lines among all of the page is maximised, less 0.01 |weights|^2.
    """
    import torch

    pages: list[tuple[torch.Tensor, torch.Tensor]] = []
    for walked in walks:
        query, known = f"{walked.goal}\nsolve the task", plain(walked.goal)
        later = [read_line(page.gesture) for page in walked.pages]
        for index, page in enumerate(walked.pages):
            lines = [line.strip() for line in tree(merged(with_tables(page.elements))).split("\n")]
            target = target_of(later[index], page.elements)
            used = [part for one in later[index:] for part in values(one, known, [page])[0]]
            right = [
                (target is not None and has_id(line, target.id))
                or any(says(plain(line), part) for part in used)
                for line in lines
            ]
            if any(right) and not all(right):
                pages.append((torch.tensor(features(query, lines)), torch.tensor(right)))
    weights = torch.zeros(len(FEATURES), requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        each = [
            torch.logsumexp(rated, 0) - torch.logsumexp(rated[right], 0)
            for rated, right in ((x @ weights, right) for x, right in pages)
        ]
        found = torch.stack(each).mean() + 0.01 * weights.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    first = float(loss().detach())
    optimiser.step(loss)
    print(f"{len(pages)} pages, loss {first:.2f} -> {float(loss().detach()):.2f}")
    print(tuple(round(float(weight), 2) for weight in weights.detach()))


def notes(walks: Sequence[Walked]) -> None:
    """Print the chores with and without a notepad, by tag."""
    bare = "notes=false&plans=false&pivotal=false"
    rows: list[tuple[str, str, dict[str, str]]] = [
        ("notes", "occam?plans=false", OCCAM),
        ("no notes", "occam?plans=false&notes=false", OCCAM),
        *((f"no notes, the last {k} pages whole", f"occam?{bare}&steps={k}", OCCAM)
          for k in (4, 12, LONGEST)),
    ]  # fmt: skip
    for id in GROUPS["chores"]:
        table(id, rows, [one for one in walks if one.id == id])


def replays(walks: Sequence[Walked]) -> None:
    """Print the hops with and without a solved episode of a like task in the prompt."""
    walks = [one for one in walks if one.id in GROUPS["hops"]]
    half = max(one.number for one in walks) // 2
    earlier = [one for one in walks if one.number <= half]
    later = [one for one in walks if one.number > half]
    print(f"\n{len(earlier)} earlier episodes, {len(later)} tasks\n")
    print("| earlier episodes in the prompt | tokens a step | success, % | done of the way, % |")
    print("| --- | ---: | --- | ---: |")
    with TemporaryDirectory() as folder:
        shelf = Path(folder) / "shelf"
        for one in earlier:
            follow(one, occam(f"occam?replays=1&shelf={shelf}"), OCCAM)
        kept = shelf.read_bytes()
        for name, agent in (("none", "occam"), ("one", f"occam?replays=1&shelf={shelf}")):
            found = []
            for one in later:
                shelf.write_bytes(kept)  # no task sees another one of its half
                way = Walkway(one)
                found.append(run(way, occam(agent), OCCAM, Imitator(way, counter())))
            cells = row(name, found).split(" | ")
            done = 100 * mean(one.done for one in found)
            print(" | ".join([cells[0], cells[1], cells[3], f"{done:.0f} |"]), flush=True)


def occam(name: str) -> OccamAgent:
    made = make_agent(name)
    assert isinstance(made, OccamAgent)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("walk", "fit", "views", "notes", "replays"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--tasks", type=int, default=8, help="of each environment (8)")
    parser.add_argument("--split", type=Split, default=Split.TEST, choices=list(Split))
    parser.add_argument("--embeddings", action="store_true", help="rank by MiniLM, too")
    options = parser.parse_args()
    if options.part == "walk":
        ids = [id for group in GROUPS.values() for id in group]
        found = []
        for id in ids:
            more = 4 if id == "miniwob/basic" else 1
            walks = [walk(id, number, options.split) for number in range(more * options.tasks)]
            found += [one for one in walks if one is not None]
            print(f"{id}: {sum(one is not None for one in walks)} of {len(walks)}", flush=True)
        options.file.write_bytes(pickle.dumps(found))
        return
    walks = pickle.loads(options.file.read_bytes())
    match options.part:
        case "views":
            views(walks, options.embeddings)
        case "fit":
            fit(walks)
        case "notes":
            notes(walks)
        case "replays":
            replays(walks)


if __name__ == "__main__":
    main()
