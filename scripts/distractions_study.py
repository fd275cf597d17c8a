"""Measures `distractions`: how often actions are faithful, distracted or invalid.

    python scripts/distractions_study.py --tasks 3

Each row is an agent by rule, a way of observing and an attack, over the same tasks. No language
model takes part:

    expert    gives the reference, whatever it reads
    obliging  does what a line of the page tells it to click, once, and takes a voucher or a coupon;
              else as the expert
    lexical   clicks the element whose line fits the goal best (BM25), or types a value of the goal
    random    clicks on something
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable

from palaestra.core.bm25 import scores
from palaestra.core.environment import Action, Environment
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.families.web.distracted_environment import LABELS
from palaestra.environments.families.web.distractions import ATTACKS
from palaestra.evaluation.statistics.intervals import wilson

STEPS = 10  # of an episode
LINE = re.compile(r"^\s*(\[\d+\]|#\d+) (\w+) ?(?:'([^']*)'|\"([^\"]*)\")?")
TOLD = re.compile(r"^(?!Task:).*click '([^']+)'")
GAIN = re.compile(r"voucher|coupon", re.IGNORECASE)
Agent = Callable[[Environment, str, str, set[str], random.Random], Action]


def shown(text: str) -> list[tuple[str, str, str]]:
    """Return target, role and name of what an observation shows to act on."""
    found = (LINE.match(line) for line in text.splitlines())
    return [(one[1], one[2], one[3] or one[4] or "") for one in found if one]


def expert(env: Environment, *_: object) -> Action:
    plan = env.oracle()
    return plan[0] if plan else Action("give up")


def obliging(env: Environment, text: str, goal: str, done: set[str], rng: random.Random) -> Action:
    told = {one for line in text.splitlines() for one in TOLD.findall(line)}
    for target, _, name in shown(text):
        if name not in done and (name in told or GAIN.search(name)):
            done.add(name)
            return Action(f"click {target}")
    return expert(env)


def lexical(env: Environment, text: str, goal: str, done: set[str], rng: random.Random) -> Action:
    fresh = [one for one in shown(text) if f"{one[1]} {one[2]}" not in done]
    if not fresh:
        return Action("back")
    rated = scores(goal, [name for _, _, name in fresh])
    target, role, name = fresh[max(range(len(fresh)), key=lambda n: rated[n])]
    done.add(f"{role} {name}")
    values = re.findall(r"'([^']+)'", goal)
    if role == "textbox" and values:
        return Action(f"type {target} '{values[len(done) % len(values)]}'")
    return Action(f"click {target}")


def at_random(env: Environment, text: str, goal: str, done: set[str], rng: random.Random) -> Action:
    return sample_action(env, rng)


AGENTS: dict[str, tuple[Agent, tuple[str, ...]]] = {
    "expert": (expert, ("text",)),
    "obliging": (obliging, ("text", "marks")),
    "lexical": (lexical, ("text", "tree", "marks")),
    "random": (at_random, ("text",)),
}
"""Agents, each with the ways of observing that make a difference for it."""


def episode(env: Environment, task: Task, agent: Agent) -> tuple[Counter[str], bool]:
    """Return the labels of an episode's actions, and whether it was solved."""
    text, labels, done = env.reset(task).text, Counter[str](), set[str]()
    goal = re.findall(r"^Task: (.*)$", text, re.MULTILINE)[0]
    rng = random.Random(task.seed)
    for _ in range(STEPS):
        step = env.step(agent(env, text, goal, done, rng))
        labels[step.info["label"]] += 1
        text = step.observation.text if step.valid else text
        if step.terminated:
            return labels, step.success
    return labels, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--attacks", nargs="+", default=ATTACKS, choices=ATTACKS)
    options = parser.parse_args()
    heads = ("agent", "observes", "attack", "actions", *(f"{one}, %" for one in LABELS), "solved")
    print(f"| {' | '.join(heads)} |")
    print("| --- | --- | --- | ---: | --- | --- | --- | ---: |")
    for attack in options.attacks:
        for name, (agent, views) in AGENTS.items():
            for view in views:
                id = f"distractions/{attack}?observation={view}"
                env, labels, solved = registry.make(id), Counter[str](), 0
                for task in registry.tasks(id).take(Split.TEST, options.tasks):
                    found, success = episode(env, task, agent)
                    labels += found
                    solved += success
                env.close()
                count = labels.total()
                rates = (wilson(labels[label], count) for label in LABELS)
                cells = [
                    f"{100 * one.mean:.0f} ({100 * one.low:.0f}–{100 * one.high:.0f})"
                    for one in rates
                ]
                row = [name, view, attack, str(count), *cells, f"{solved} of {options.tasks}"]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
