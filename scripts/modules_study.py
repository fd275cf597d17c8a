"""A main agent with modules; reflection and voting over whole runs (docs/results/agents.md).

    python scripts/modules_study.py FOLDER [--tasks 100]

A question names a file of countries and weights, and asks for the weighted sum of their
populations (`encyclopedia_pages.Research`): a module reads the file, one searches the encyclopedia,
one runs Python in a sandbox. No language model is used. Every role is played by a rule that sees no
more than its prompt, and slips with a stated probability: the web module takes the number of
another line, the file module misses a line, the code module leaves a weight out. The reviewer
compares what a run reports, line by line: it sees a wrong label and a missing country, and not what
the code did. So the success of one run, without votes, is a formula.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from encyclopedia_pages import Research

from palaestra.agents.module_lines import MODULE, REVIEW
from palaestra.agents.registry import make_agent
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.evaluation.statistics.intervals import wilson
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.exchange.chat_jsonl import write_chat

WEB, FILE, CODE = 0.1, 0.1, 0.15  # the probabilities of a slip, for each piece of work
RETRIES = 2
FACT = Research.FACT
VOTES = 3
AGENTS = {
    "one run": "modules",
    f"{RETRIES} retries": f"modules?retries={RETRIES}",
    f"{VOTES} votes": f"modules?votes={VOTES}",
    f"{RETRIES} retries, {VOTES} votes": f"modules?retries={RETRIES}&votes={VOTES}",
}


class Roles(Model):
    """Rules in the place of a language model, for all roles."""

    name = "rules"

    async def generate(self, prompt: Prompt) -> Generation:
        said = reply(prompt.messages, random.Random(prompt.seed))
        return given_generation(said, prompt, self)


def reply(messages: Sequence[Message], rng: random.Random) -> str:
    told = messages[0].text
    if told == REVIEW:
        return review(messages[1].text)
    for name, rule in (("web", web), ("file", file), ("code", code)):
        if MODULE.format(name) in told:
            return rule(messages, rng)
    return main_agent(messages)


def main_agent(messages: Sequence[Message]) -> str:
    """Ask for the file, for each of its countries, for the sum, and finish."""
    reports = [message.text for message in messages[3::2]]
    if not reports:
        return "file: list.csv"
    rows = re.findall(r"([^,;|]+),(\d+)", reports[0].partition(": ")[2])
    found = [report for report in reports if report.startswith("web: ")]
    if len(found) < len(rows):
        return f"web: {rows[len(found)][0]}"
    if not reports[-1].startswith("code: "):
        numbers = [report.rpartition(" = ")[2] for report in found]
        return f"code: {' + '.join(f'{n} * {w}' for n, (_, w) in zip(numbers, rows, strict=True))}"
    return f"Finish: answer {reports[-1].removeprefix('code: ')}"


def file(messages: Sequence[Message], rng: random.Random) -> str:
    if len(messages) == 2:
        return f"Action: read {messages[1].text}"
    rows = messages[-1].text.split("\n")[1:]
    if rng.random() < FILE:
        rows.pop(rng.randrange(len(rows)))
    return f"Report: {'|'.join(rows)}"


def web(messages: Sequence[Message], rng: random.Random) -> str:
    """Search for an article, open it and the section, and report the line with the fact."""
    name, done = messages[1].text, (len(messages) - 2) // 2
    page = messages[-1].text
    if done == 0:
        return f"Action: search {name}"
    if done < 3:
        wanted = name if done == 1 else FACT.section
        links = re.findall(r"""^(\[\d+\]) link ['"](.*)['"]$""", page, re.M)
        return f"Action: click {next(id for id, text in links if text == wanted)}"
    lines = page.split("\n")
    facts = [
        (label, digits[1].replace(",", ""))
        for label, text in pairwise(lines)
        if (digits := re.match(r"([\d,]+)(?: |$)", text)) and not label[0].isdigit()
    ]
    right = next(fact for fact in facts if fact[0] == FACT.label)
    others = [fact for fact in facts if fact != right]
    label, number = rng.choice(others) if others and rng.random() < WEB else right
    return f"Report: {name}: {label} = {number}"


def code(messages: Sequence[Message], rng: random.Random) -> str:
    if len(messages) > 2:
        return f"Report: {messages[-1].text}"
    terms = messages[1].text.split(" + ")
    if rng.random() < CODE:
        at = rng.randrange(len(terms))
        terms[at] = terms[at].partition(" * ")[0]
    return f"Action: python print({' + '.join(terms)})"


def review(told: str) -> str:
    """Accept a run if it has as many countries as its task, each with the right label."""
    found = re.findall(r"^web: (.+?): (.+) = \d+$", told, re.M)
    wrong = [name for name, label in found if label != FACT.label]
    if wrong:
        return f"no: the number of {wrong[0]} is not its {FACT.label}."
    if len(found) < Research.COUNTRIES:
        return "no: the file has more countries."
    return "yes"


def expected() -> tuple[float, float]:
    """Return the probability that one run succeeds, and that one with retries does."""
    seen = (1 - WEB) ** Research.COUNTRIES * (1 - FILE)  # nothing is wrong that a review sees
    accepted = 1 - (1 - seen) ** (RETRIES + 1)
    return seen * (1 - CODE), accepted * (1 - CODE)


async def run(name: str, tasks: int) -> list[Episode]:
    agent, world = make_agent(name), LocalEnvironment(Research())
    episodes = []
    for number in range(tasks):
        task = Task(f"test/{number}", "research", number)
        key, models = Key("test", number), {"agent": Roles()}
        episode = await Session(key, task, world, agent, models).run()
        assert episode.outcome.scored, (episode.outcome, episode.outcome.detail)
        episodes.append(episode)
    await world.close()
    return episodes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=100)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    one, retried = expected()
    formula = {"one run": f"{100 * one:.1f}", f"{RETRIES} retries": f"{100 * retried:.1f}"}
    print("| agent | formula | success % [95 %] | calls | actions, tried ones included |")
    print("| --- | --- | --- | --- | --- |")
    for words, name in AGENTS.items():
        found = asyncio.run(run(name, asked.tasks))
        rate = wilson(sum(one.outcome.solved for one in found), len(found))
        share = f"{100 * rate.mean:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"
        calls = fmean(len(one.calls) for one in found)
        acted = fmean(one.usage.turns + one.usage.tried for one in found)
        told = formula.get(words, "–")
        print(f"| {words} | {told} | {share} | {calls:.0f} | {acted:.0f} |", flush=True)
        if words == "one run":
            verified = [one for one in found if one.outcome.solved]
            rows = write_chat(asked.folder / "verified.jsonl", verified)
    roles = [json.loads(line)["role"] for line in (asked.folder / "verified.jsonl").open()]
    counts = ", ".join(f"{roles.count(role)} of {role}" for role in dict.fromkeys(roles))
    print(f"{len(verified)} verified runs became {rows} conversations: {counts}")


if __name__ == "__main__":
    main()
