"""Subtasks with a tree search each against flat searches (docs/results/search.md).

    python scripts/webpilot_study.py [--tasks 60] [--split train] [--loads 120,240] [--agents "A;B"]

Tasks are to open three sections of articles of the encyclopedia, one after the other
(`encyclopedia_pages.py`). All agents load at most as many pages in trials, and take as many turns.
No language model is used: the model of all roles is a rule that reads words. It proposes links at
random, and those that share words with what it is asked to do more often; it divides a task at
"; then"; and it values a page by the words that it shows. It knows neither site nor solution.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import re
from collections.abc import Sequence
from statistics import fmean

from encyclopedia_pages import OpenSections

from palaestra.agents.numbered_plan import numbered
from palaestra.agents.registry import make_agent
from palaestra.agents.search.effect_and_potential import NOW, VALUE, effect_and_potential
from palaestra.agents.search.scorers import ended
from palaestra.agents.search.tree import Node
from palaestra.agents.search.webpilot import AGAIN, PLAN, WHOLE
from palaestra.core.budget import Budget
from palaestra.core.episode import Key
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.trial import Trial
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment

SHARPNESS = 3.0  # a link with n words of the goal is e^(3n) times as likely
LINKED = 0.6  # what a word is worth that a link says, beside one of a page that is open
TURNS = 40
VALUED = "scorer=webpilot_study:for_whole_task"
AGENTS = {
    "no search": "direct",
    "best-first, 4 proposals": f"best_first?budget=8&samples=4&depth=8&{VALUED}",
    "best-first, 16 proposals": f"best_first?budget=8&samples=16&depth=8&{VALUED}",
    "LATS": f"lats?iterations=8&samples=8&depth=8&{VALUED}",
    "MCTS without a plan": "webpilot?plan=false&iterations=60",
    "webpilot": "webpilot?iterations=60",
    "webpilot, potential only": "webpilot?iterations=60&effect=0",
}
LINK = re.compile(r"^(\[\d+\]) link '(.*)'$", re.MULTILINE)
PART = re.compile(r"the section '(.+?)' about (.+?) in ([^;.]+)")


class WordReader(Model):
    """A rule in the place of a language model; it knows only its prompt."""

    name = "word-reader"

    async def generate(self, prompt: Prompt) -> Generation:
        return given_generation(reply(prompt.messages, random.Random(prompt.seed)), prompt, self)


def reply(messages: Sequence[Message], rng: random.Random) -> str:
    asked = messages[-1].text
    if asked.endswith((PLAN, AGAIN)):
        return numbered(left(asked))
    if messages[0].text == VALUE:
        return valued(asked)
    pages = asked.partition(NOW)
    goal = pages[2].partition("\n")[0] if pages[1] else WHOLE
    goal = messages[1].text.partition("\n")[0] if goal == WHOLE else goal
    tried = set(re.findall(r"^click (\[\d+\])", pages[2], re.MULTILINE))
    links = [link for link in LINK.findall(pages[0]) if link[0] not in tried]
    if not links:
        return "click [3]"
    wanted = words(goal)
    weights = [math.exp(SHARPNESS * len(words(name) & wanted)) for _, name in links]
    return f"click {rng.choices(links, weights)[0][0]}"


def words(text: str) -> set[str]:
    small = {"open", "the", "section", "about", "task", "then", "and", "of", "in"}
    return set(re.findall(r"\w+", text.casefold())) - small


def left(asked: str) -> list[str]:
    """Return the parts of the task, without the first ones that a page on the way was."""
    parts = PART.findall(asked.partition("\n")[0])
    pages = re.split(r"^> .*$", asked, flags=re.MULTILINE)
    for page in pages:
        parts = parts[1:] if parts and is_page(page, *parts[0]) else parts
    return [f"open the section '{s}' about {name} in {region}" for s, name, region in parts]


def is_page(page: str, section: str, name: str, region: str) -> bool:
    return f"\n{name}: {section}\n" in f"{page}\n"


def valued(asked: str) -> str:
    """Value the last page for a subtask: by words of pages that were opened, and of links.

    For the whole task a part counts once its page was opened, in the order of the parts.
    """
    head, _, told = asked.partition("\n\n")
    goal, pages = head.removeprefix(NOW.strip()).strip(), re.split(r"^> .*$", told, flags=re.M)
    parts = PART.findall(pages[0].partition("\n")[0] if goal == WHOLE else goal)
    opened, count = 0, len(parts)
    if goal == WHOLE:
        for page in pages:
            opened += opened < count and is_page(page, *parts[opened])
    before, after = (promise(page, parts[min(opened, count - 1)]) for page in ("", *pages)[-2:])
    if goal == WHOLE:
        after = (opened + (after if opened < count else 0)) / count
        before = (opened + (before if opened < count else 0)) / count
    effect = 10 if after > before else 5 if pages[-1] not in pages[:-1] else 0
    return f"Effect: {effect}\nPotential: {10 * after:.1f}"


def promise(page: str, part: tuple[str, str, str]) -> float:
    """Return how far a page leads to a part: 1 if it is its page."""
    if is_page(page, *part):
        return 1.0
    links = set().union(*(words(name) for _, name in LINK.findall(page)))
    texts = words(re.sub(LINK, "", page))
    wanted = words(" ".join(part))
    found = sum(1.0 if w in texts else LINKED if w in links else 0.0 for w in wanted)
    return 0.9 * found / len(wanted)


async def for_whole_task(session: Session, trial: Trial, node: Node) -> float:
    """Value a state for the whole task: the scorer of flat searches."""
    if ended(node):
        return 1.0 if node.solved else -1.0
    return sum(await effect_and_potential(session, node, WHOLE)) / 2


async def run(name: str, loads: int, tasks: int, split: str) -> tuple[list[bool], float, float]:
    """Return who succeeded, and how many model calls and page loads an episode took."""
    agent, world = make_agent(name), LocalEnvironment(OpenSections())
    solved, calls, pages = list[bool](), list[int](), list[int]()
    for number in range(tasks):
        task = Task(f"{split}/{number}", "encyclopedia", number)
        budget = Budget(turns=TURNS, tried=loads)
        key, models = Key("test", number), {"agent": WordReader()}
        episode = await Session(key, task, world, agent, models, budget=budget).run()
        assert episode.outcome.scored, (episode.outcome, episode.outcome.detail)
        solved.append(episode.outcome.solved)
        calls.append(len(episode.calls))
        pages.append(episode.usage.tried + episode.usage.turns)
    await world.close()
    return solved, fmean(calls), fmean(pages)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--split", choices=["train", "test"], default="test")
    parser.add_argument("--loads", default="120,240")
    parser.add_argument("--agents", default=";".join(AGENTS))
    asked = parser.parse_args()
    print("| loads in trials, at most | agent | success % [95 %] | calls | pages loaded |")
    print("| --- | --- | --- | --- | --- |")
    for loads in map(int, asked.loads.split(",")):
        for name in AGENTS if asked.agents == ";".join(AGENTS) else asked.agents.split(";"):
            solved, calls, pages = asyncio.run(
                run(AGENTS.get(name, name), loads, asked.tasks, asked.split)
            )
            rate = wilson(sum(solved), len(solved))
            share = f"{100 * rate.mean:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
            print(f"| {loads} | {name} | {share} | {calls:.0f} | {pages:.0f} |", flush=True)


if __name__ == "__main__":
    main()
