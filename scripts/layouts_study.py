"""Compares ways in which robots work together on a grid of boxes, and writes docs/results/teams.md.

    python scripts/layouts_study.py [--tasks 100] [--only TABLES] [--write]

Four tables: layouts of the dialogue (Chen et al. 2023), what robots tell each other that see only a
part of the grid, plans of all against each robot's own plan, and beliefs about a partner. All rows
for a number of robots have the same tasks. The model is `planner`, which reads the grid in its
prompt and errs at stated rates; it is no language model, and nothing here says what language models
reach. Words are counted, not tokens: those of all prompts, and of all replies. `--write` puts the
tables into the page between their markers.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from results_page import write_table

import palaestra as pa
from palaestra.core.episode import Episode
from palaestra.evaluation.statistics.intervals import mean_interval, wilson

SIZES = (2, 4, 6, 8)
EARLY = 2  # rounds in which no belief can have been corrected: habit predicts from the second on
ROUNDS = re.compile(r"(\d+) rounds")
CHANNEL = "[channels.{name}]\nlength = 8000\n{content}"
SCHEMA = 'content = {type = "object", properties = {goals = {type = "object"}}}\n'


@dataclass(frozen=True, slots=True)
class Measured:
    """What the episodes of one row come to; lists have a number per task."""

    solved: int
    rounds: list[float]  # of the grid; the limit where a task is not solved
    replies: list[float]
    read: list[float]  # words of all prompts
    written: list[float]  # words of all replies
    sent: list[float]  # messages
    bytes: list[float]  # of messages, for each recipient


def measured(episodes: Sequence[Episode]) -> Measured:
    """Measure episodes."""
    found = Measured(sum(one.outcome.solved for one in episodes), [], [], [], [], [], [])
    for episode in episodes:
        rounds = ROUNDS.search(episode.steps[-1].transition.observation.text)
        if rounds is None:
            raise RuntimeError(f"{episode.task.id} ended by {episode.outcome}, not by the grid")
        conversations: list[int] = []  # words of each call's conversation, its reply included
        read = 0
        for call in episode.calls:
            before = 0 if call.parent is None else conversations[call.parent]
            prompt = before + sum(len(message.text.split()) for message in call.messages)
            read += prompt
            conversations.append(prompt + len(call.reply.text.split()))
        infos = [s.transition.info for s in episode.steps if "message" in s.transition.info]
        found.rounds.append(float(rounds[1]))
        found.replies.append(len(episode.calls))
        found.read.append(read)
        found.written.append(sum(len(call.reply.text.split()) for call in episode.calls))
        found.sent.append(len(infos))
        found.bytes.append(sum(info["bytes"] * len(info["to"]) for info in infos))
    return found


def run(environment: str, model: str, tasks: int, folder: Path, team: str | None) -> Measured:
    """Evaluate one row."""
    several = {"team": team} if team else {"agent": "players"} if ":" in environment else {}
    results = pa.evaluate(
        environment, model=model, n=tasks, run=folder, workers=0, progress=False, **several
    )
    return measured(results.episodes)


def rate(found: Measured) -> str:
    """Return success with Wilson's interval."""
    interval = wilson(found.solved, len(found.rounds))
    return f"{100 * interval.mean:.0f} ({100 * interval.low:.0f} to {100 * interval.high:.0f})"


def mean(values: Sequence[float], digits: int = 0) -> str:
    """Return a mean with its bootstrap interval."""
    interval = mean_interval(values)
    return (
        f"{interval.mean:,.{digits}f} ({interval.low:,.{digits}f} to {interval.high:,.{digits}f})"
    )


def channel(folder: Path, name: str) -> str:
    """Write the file of a channel; return the knob for it."""
    path = folder / f"{name}.toml"
    path.write_text(CHANNEL.format(name=name, content=SCHEMA if name == "facts" else ""))
    return f"?messages={path}"


def robots(
    tasks: int, folder: Path, form: str, model: str, arms: Mapping[str, str]
) -> Iterator[str]:
    """Yield rows of a table of what robots send each other; `arms` has the channel of each row."""
    for n in SIZES:
        for name, sends in arms.items():
            knob = channel(folder, sends) if sends else ""
            found = run(
                f"boxes/{n}:{form}{knob}", model, tasks, folder / f"{form}-{n}-{name}", None
            )
            yield (
                f"| {form} | {n} | {name} | {rate(found)} | {mean(found.rounds, 2)} "
                f"| {mean(found.sent, 1)} | {mean(found.bytes)} |"
            )


def layouts(tasks: int, folder: Path) -> Iterator[str]:
    """Yield the table of layouts."""
    yield (
        "| own, others | robots | layout | success, % | rounds | replies | words read "
        "| words written |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for own, others in ((0.95, 0.8), (0.9, 0.9)):
        for n in SIZES:
            for layout in ("cmas", "dmas", "hmas-1", "hmas-2"):
                team = None if layout == "cmas" else f"{layout}:{n}"
                model = f"planner?own={own}&others={others}"
                place = folder / f"layouts-{own}-{n}-{layout}"
                found = run(f"boxes/{n}", model, tasks, place, team)
                yield (
                    f"| {own}, {others} | {n} | {layout} | {rate(found)} | {mean(found.rounds, 2)} "
                    f"| {mean(found.replies, 1)} | {mean(found.read)} | {mean(found.written)} |"
                )


def sharing(tasks: int, folder: Path) -> Iterator[str]:
    """Yield the table of what robots share that see only a part of the grid."""
    yield "| view | robots | shared | success, % | rounds | messages | bytes |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    arms = {"nothing": "", "whole states": "states", "typed facts": "facts"}
    for form in ("near", "cell"):
        yield from robots(tasks, folder, form, "planner", arms)


def plans(tasks: int, folder: Path) -> Iterator[str]:
    """Yield the table of plans of all robots, and of each robot's own."""
    yield "| view | robots | plan | success, % | rounds | messages | bytes |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    arms = {
        "each its own": "",
        "of all, revised on progress": "plan",
        "of all, revised in every round": "plan_each_round",
    }
    yield from robots(tasks, folder, "each", "planner?own=0.95&others=0.95", arms)


def foretold(episodes: Sequence[Episode]) -> dict[bool, list[float]]:
    """Return whether robot1 expected robot2's move (1 or 0), by whether it was a late round.

    Only rounds count at whose beginning robot2 had a box in its cell, so that it had a choice.
    """
    found: dict[bool, list[float]] = {False: [], True: []}
    for episode in episodes:
        did = [s.action.text for s in episode.steps if s.before.turn == "robot2"]
        for call in episode.calls:
            lines = call.messages[-1].text.splitlines()
            seen = re.match(r"Round (\d+) of", lines[0])
            if call.role != "robot1" or seen is None or "robot2: boxes none" in "\n".join(lines):
                continue
            expects = lines[-1].removeprefix("robot2: ")
            found[int(seen[1]) > EARLY].append(float(expects == did[int(seen[1]) - 1]))
    return found


def beliefs(tasks: int, folder: Path) -> Iterator[str]:
    """Yield the table of beliefs about a partner; robot1 has them, of robot2."""
    yield (
        f"| robots | robot2 | robot1 | success, % | rounds | foretold in rounds 1 to {EARLY}, % "
        "| later, % |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    agents = {
        "no beliefs": "direct",
        "reason alone": "beliefs?partner=robot2&corrects=false&checks=false",
        "corrected": "beliefs?partner=robot2&checks=false",
        "corrected, checked": "beliefs?partner=robot2",
    }
    for n in (2, 4):
        for partner in ("planner", "planner?active=0.3", "planner?own=0.5"):
            for name, agent in agents.items():
                results = pa.evaluate(
                    f"boxes/{n}:each",
                    players={"robot1": f"{agent}@planner?own=0.9", "robot2": f"@{partner}"},
                    model="planner",
                    n=tasks,
                    run=folder / f"beliefs-{n}-{partner[7:]}-{name}",
                    workers=0,
                    progress=False,
                )
                found, hits = measured(results.episodes), foretold(results.episodes)
                shares = [
                    "–" if agent == "direct" else f"{100 * sum(hits[late]) / len(hits[late]):.0f}"
                    for late in (False, True)
                ]
                yield (
                    f"| {n} | {partner} | {name} | {rate(found)} | {mean(found.rounds, 2)} "
                    f"| {shares[0]} | {shares[1]} |"
                )


TABLES: dict[str, Callable[[int, Path], Iterator[str]]] = {
    "layouts": layouts,
    "sharing": sharing,
    "plans": plans,
    "beliefs": beliefs,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--only", default=",".join(TABLES), help="tables, separated by commas")
    parser.add_argument("--folder", type=Path, help="for files and runs (default: temporary)")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.only.split(","):
            rows = []
            for row in TABLES[name](options.tasks, folder):
                print(row, flush=True)
                rows.append(row)
            if options.write:
                write_table("teams.md", name, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
