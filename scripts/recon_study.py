"""Tools from contrasted attempts on web pages (docs/results/web.md).

    python scripts/recon_study.py FOLDER [--pages A,B] [--train 6] [--attempts 4] [--test 10]

For each page of MiniWoB++ with a reference, in a real browser: success on held-out tasks without
tools, attempts at training tasks in which tools are written and used, and success on the held-out
tasks again. All pages share one library. No language model is used. The one that acts is a rule: it
takes a tool if one fits, and else clicks what shares most words with the goal. The scout is the
reference with one action in five replaced by a random one. The writer is a rule, too: what a
successful attempt typed, selected or clicked, and what its goal says, becomes a variable; what else
varied between an attempt that failed in the same way and the one that succeeded follows from no
rule, so it writes a hint, which nobody here reads.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from palaestra.agents.memory.attempt_stories import read_story
from palaestra.agents.memory.recon import FAILED, SCOUT, SOLVED, TOOLS, WRITE, WRITER, ReconAgent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Words
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.core.message import Message
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.miniwob.solver import SOLVERS
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.sandbox.function_library import Library

ERROR, TURNS = 0.2, 12
LINE = re.compile(r"^\s*(\[\d+\]) (link|button|checkbox|radio|textbox|combobox|tab) ?(.*)$", re.M)
CHANGES: dict[str, Callable[[str], str]] = {"": str, ".upper()": str.upper, ".lower()": str.lower}
ROLES = (" link", " button", " checkbox", " radio")  # that a locator adds to words


def acting(messages: Sequence[Message]) -> str:
    """Take the newest tool that fits; else click what shares most words with the goal."""
    told, done = messages[0].text.partition(TOOLS)[2], [m.text for m in messages[2::2]]
    if told and not done:
        return told.strip().partition(":")[0]
    goal = words(messages[1].text.partition("\n")[0])
    lines = [one for one in LINE.findall(messages[-1].text) if f"click {one[0]}" not in done]
    if not lines:
        return "give up"
    return f"click {max(lines, key=lambda one: len(words(one[2]) & goal))[0]}"


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def writing(messages: Sequence[Message]) -> str:
    """Write a tool from a failed and a successful attempt, or a hint."""
    assert messages[0].text == WRITE
    failed, _, solved = messages[1].text.partition(SOLVED)
    first, taken = read_story(solved)
    _, wrong = read_story(failed.removeprefix(FAILED))
    goal = first.partition("\n")[0]
    form = Form(goal)
    rules = [form.rule(action) for action in taken]
    varies = [
        one for one, other in zip(taken, wrong, strict=False)
        if form.free(one) and form.free(other) and one != other and shape(one) == shape(other)
    ]  # fmt: skip
    typed = [one for one in taken if read_line(one).text and form.free(one)]
    name = f"tool_{zlib.crc32(form.pattern.encode()):08x}"
    returned = f"[{', '.join(rules)}]"
    value: list[str] | str = taken
    if typed or (varies and len(wrong) <= len(taken)):
        value = f"It was solved by: {'; '.join(taken)}"
        returned = repr(value)
    source = (
        f"import re\n\n\ndef {name}(first):\n"
        f"    found = re.fullmatch({form.pattern!r}, first.partition('\\n')[0])\n"
        f"    return {returned} if found else None"
    )
    return f"```python\n{source}\n```\n```test\nassert {name}({first!r}) == {value!r}\n```"


@dataclass
class Form:
    """A goal with variables, in the order in which actions first use them."""

    goal: str
    at: dict[str, int] = field(default_factory=dict)  # where a value stands, by value

    def rule(self, action: str) -> str:
        """Return a Python expression of an action."""
        gesture = read_line(action)
        parts = [gesture.text, gesture.target.words if isinstance(gesture.target, Words) else ""]
        shown, code = gesture, dict[str, str]()
        for part, mark in zip(parts, ("TEXT", "TARGET"), strict=True):
            if part and (found := self.value(part)) is not None:
                code[mark] = found
        if "TEXT" in code:
            shown = replace(shown, text="TEXT")
        if "TARGET" in code:
            shown = replace(shown, target=Words("TARGET"))
        line = repr(write_line(shown))
        return line + "".join(f".replace({mark!r}, {one})" for mark, one in code.items())

    def value(self, part: str) -> str | None:
        """Return an expression for a value that the goal says; None: it does not say it."""
        end = next((role for role in ROLES if part.endswith(role)), "")
        for word in dict.fromkeys((part, part.removesuffix(end))):
            for change, made in CHANGES.items():
                spans = re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", self.goal, re.I)
                for span in spans:
                    if made(span[0]) == word:
                        self.at.setdefault(span[0], span.start())
                        tail = f" + {end!r}" if word != part else ""
                        return f"found[{self.name(span[0])!r}]{change}{tail}"
        return None

    def name(self, value: str) -> str:
        return f"v{[*self.at].index(value)}"

    def free(self, action: str) -> bool:
        """Return whether an action has a value that the goal does not say."""
        try:
            gesture = read_line(action)
        except InputError:
            return False
        target = gesture.target.words if isinstance(gesture.target, Words) else ""
        own = [part for part in (gesture.text or target,) if part]
        return any(self.value(part) is None for part in own)

    @property
    def pattern(self) -> str:
        pattern, end = "", 0
        for value, start in sorted(self.at.items(), key=lambda one: one[1]):
            if start < end:
                continue
            pattern += f"{re.escape(self.goal[end:start])}(?P<{self.name(value)}>.+?)"
            end = start + len(value)
        return pattern + re.escape(self.goal[end:])


def shape(action: str) -> tuple[str, bool]:
    gesture: Gesture = read_line(action)
    return gesture.kind, isinstance(gesture.target, Words)


class Page:
    """One page with an agent; episodes of one after the other."""

    def __init__(self, page: str, library: Path) -> None:
        self.id = f"miniwob/{page}?targets=words"
        self.world = LocalEnvironment(registry.make(self.id))
        self.agent = ReconAgent(library=str(library))

    def play(self, phase: str, split: Split, tasks: int, attempts: int = 1) -> list[Episode]:
        return asyncio.run(self._play(phase, split, tasks, attempts))

    async def _play(self, phase: str, split: Split, tasks: int, attempts: int) -> list[Episode]:
        played = []
        for number, task in enumerate(registry.tasks(self.id).take(split, tasks)):
            for attempt in range(attempts):
                expert = ExpertModel(self.agent, error=ERROR, environment=self.world)
                models = {
                    "agent": ScriptedModel(acting), WRITER: ScriptedModel(writing), SCOUT: expert,
                }  # fmt: skip
                key = Key(phase, number, attempt)
                session = Session(
                    key, task, self.world, self.agent, models, budget=Budget(turns=TURNS)
                )
                episode = await session.run()
                assert episode.outcome.scored, (episode.outcome, episode.outcome.detail)
                self.agent.witness(episode)
                played.append(episode)
        return played


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", default=",".join(SOLVERS))
    parser.add_argument("--train", type=int, default=6)
    parser.add_argument("--attempts", type=int, default=4)
    parser.add_argument("--test", type=int, default=10)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True)
    library, empty = asked.folder / "tools.jsonl", asked.folder / "none.jsonl"
    pages = asked.pages.split(",")
    before, first, after = {}, {}, {}
    for name in pages:
        page = Page(name, empty)
        before[name] = solved(page.play("before", Split.TEST, asked.test))
        page.agent = ReconAgent(library=str(library))
        attempts = page.play("train", Split.TRAIN, asked.train, asked.attempts)
        first[name] = [one.outcome.solved for one in attempts if one.key.member == 0]
        asyncio.run(page.world.close())
    print("| page | without tools | first attempts in training | with tools |")
    print("| --- | --- | --- | --- |")
    for name in pages:
        page = Page(name, library)
        after[name] = solved(page.play("after", Split.TEST, asked.test))
        asyncio.run(page.world.close())
        row = f"{sum(before[name])} | {''.join('-+'[x] for x in first[name])} | {sum(after[name])}"
        print(f"| {name} | {row} |", flush=True)
    for told, of in (("without", before), ("with", after)):
        rate = wilson(sum(map(sum, of.values())), sum(map(len, of.values())))
        print(
            f"{told} tools: {100 * rate.mean:.1f} % [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
        )
    kept = Library(library)
    print(f"{len(kept.latest())} functions in {len(kept.versions())} versions")


def solved(episodes: Sequence[Episode]) -> list[bool]:
    return [episode.outcome.solved for episode in episodes]


if __name__ == "__main__":
    main()
