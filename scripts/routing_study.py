"""Lets a team with decentralised routing learn from rounds, and writes docs/results/teams.md.

    python scripts/routing_study.py [--tasks 300] [--rounds 8] [--write]

A task asks one question of one of four skills, or two of two skills; a letter answers each. For
each skill there are two members who know more of it than the others. They are the model `reader`,
which chooses by what it reads: the work of its neighbours in similar tasks. After each round
`palaestra team` writes the team of the next one, and once takes a member out. Each round has tasks
of its own.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from math import log
from pathlib import Path

from results_page import write_table

import palaestra as pa
from palaestra.cli.main import main as palaestra
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Task
from palaestra.environments.teams.learned_routes import routes_of
from palaestra.evaluation.statistics.intervals import wilson

SKILLS = ("physics", "music", "law", "chess")
BEST, SECOND, OTHERS = 0.9, 0.7, 0.25
MEMBERS = {
    f"m{number}": (skill, right)
    for number, (right, skill) in enumerate(product((BEST, SECOND), SKILLS))
}
"""Skill and probability of each member."""

REMOVED, AFTER = "m0", 3  # the member that is taken out, and the last round with it


class Skills(Environment, capabilities={"answer", "admissible"}, typical_turns=1):
    """One question, or two of two skills."""

    instructions = "Answer each question with a letter from a to d, such as: a, or: c a."

    def reset(self, task: Task) -> Observation:
        rng = random.Random(f"skills {task.seed}")
        self.asked = rng.sample(SKILLS, rng.choice((1, 2)))
        self.right = " ".join(rng.choice("abcd") for _ in self.asked)
        lines = [f"{skill} question {rng.randrange(10**6)}" for skill in self.asked]
        if len(lines) > 1:
            lines = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
        return Observation("\n".join(lines))

    def step(self, action: Action) -> Transition:
        if action.text not in self.admissible():
            return Transition(Observation(self.instructions), valid=False)
        solved = action.text == self.right
        return Transition(Observation("Over."), float(solved), terminated=True, success=solved)

    def admissible(self) -> Sequence[str]:
        return [" ".join(letters) for letters in product("abcd", repeat=len(self.asked))]

    def answer(self) -> Action:
        return Action(self.right)


def play(file: Path, run: Path, number: int, options: argparse.Namespace) -> None:
    """Evaluate a team on the tasks of a round."""
    tasks, shard = options.tasks * options.rounds, f"{number + 1}/{options.rounds}"
    id = f"routing_study:{Skills.__name__}"
    command(
        "eval", "--env", id, "--team", str(file), "--model", "reader",
        "-n", str(tasks), "--shard", shard, "--run", str(run), "--workers", "0",
    )  # fmt: skip


def command(*arguments: str) -> None:
    """Run a command of palaestra without its output."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = palaestra(arguments)
    if code != 0:
        raise SystemExit(said.getvalue())


def row(number: int, members: int, run: Path) -> str:
    """Return the row of a round."""
    opened = pa.Run(run)
    episodes = [one for phase in opened.phases for one in opened.episodes(phase)]
    done = [
        (route["path"][-1], next(skill for skill in SKILLS if skill in route["task"]))
        for episode in episodes
        for route in routes_of(episode)
        if not route["split"]
    ]
    right = sum(MEMBERS[member][0] == skill for member, skill in done)
    best = sum(MEMBERS[member] == (skill, BEST) for member, skill in done)
    success = wilson(sum(one.outcome.solved for one in episodes), len(episodes))
    knowing = wilson(right, len(done))
    replies = sum(len(one.steps) for one in episodes) / len(episodes)
    return (
        f"| {number} | {members} | {success.mean:.3f} ({success.low:.3f} to {success.high:.3f}) | "
        f"{knowing.mean:.3f} ({knowing.low:.3f} to {knowing.high:.3f}) | {best / len(done):.3f} | "
        f"{specialisation(done):.2f} | {replies:.2f} |"
    )


def specialisation(done: Sequence[tuple[str, str]]) -> float:
    """Return how much of the uncertainty about a question's skill its member removes, 0 to 1.

    It is the mutual information of member and skill over the entropy of the skill.
    """
    pairs, members, skills = (
        Counter(done), Counter(member for member, _ in done), Counter(skill for _, skill in done)
    )  # fmt: skip
    n = len(done)
    shared = sum(
        count / n * log(count * n / (members[member] * skills[skill]))
        for (member, skill), count in pairs.items()
    )
    return shared / -sum(count / n * log(count / n) for count in skills.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=300, help="of a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    rows = [
        "| round | members | success, 95 % | questions done by one of the two who know, 95 % | "
        "by the best | specialisation | replies |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        file, members = folder / "team-0.toml", len(MEMBERS)
        text = "[routing]\n"
        for name, (skill, right) in MEMBERS.items():
            model = f"reader?right={right}&outside={OTHERS}"
            text += f'[members.{name}]\nskills = "{skill}"\nmodel = "{model}"\n'
        file.write_text(text)
        for number in range(options.rounds):
            run = folder / f"run-{number}"
            play(file, run, number, options)
            rows.append(row(number, members, run))
            print(rows[-1], flush=True)
            file = folder / f"team-{number + 1}.toml"
            removed = ["--without", REMOVED] if number == AFTER else []
            members -= len(removed) // 2
            command("team", str(run), "--to", str(file), *removed)
    if options.write:
        write_table("teams.md", "routing", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
