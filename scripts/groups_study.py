"""Lets teams form at run time, and writes how often they succeed beside the formulas.

    python scripts/groups_study.py [--tasks 2000] [--folder FOLDER] [--write]

A task has two lines, each of one of five kinds: law, music and history need one skill; science and
medicine need two others, one for each half. Only the host is there at first. Members are the model
`reader`: right with one probability within its skills, and with another one outside them. Whom the
host and, in their own groups, the leads of science and medicine find then follows, and with it how
often the team must succeed. In the last cases hosts make the members, of the skills that they name.
A line holds if the formula's value is in Wilson's 95 % interval of the
run. `--write` puts the table into docs/results/teams.md, between its markers.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from orchestrator_study import CRASHES
from results_page import run_cases

import palaestra as pa
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.task import Task
from palaestra.environments.teams.protocol import facts_of

HALVES = {
    "law": (),
    "music": (),
    "history": (),
    "science": ("optics", "heat"),
    "medicine": ("surgery", "nursing"),
}
"""The kinds of lines, with the skills for the halves of those that have two."""
LETTERS = "abcd"
SKILLED, LEAD, CHANCE = 0.9, 0.3, 1 / len(LETTERS)


class Domains(Environment, capabilities={"answer", "admissible"}, typical_turns=1):
    """Two lines of different kinds; a letter answers a line, or each half of it."""

    instructions = "Answer each line with a letter from a to d, or one for each half: c ab."

    def reset(self, task: Task) -> Observation:
        rng = random.Random(f"domains {task.seed}")
        self.kinds = rng.sample([*HALVES], 2)
        self.right = rng.choice(self.admissible())
        return Observation(
            "\n".join(self._line(n, kind, rng) for n, kind in enumerate(self.kinds, 1))
        )

    def step(self, action: Action) -> Transition:
        if action.text not in self.admissible():
            return Transition(Observation(self.instructions), valid=False)
        solved = action.text == self.right
        seen = Observation("Right." if solved else "Wrong.")
        return Transition(seen, float(solved), terminated=True, success=solved)

    def admissible(self) -> Sequence[str]:
        words = [
            ["".join(w) for w in product(LETTERS, repeat=len(HALVES[k]) or 1)] for k in self.kinds
        ]
        return [" ".join(chosen) for chosen in product(*words)]

    def answer(self) -> Action:
        return Action(self.right)

    def _line(self, number: int, kind: str, rng: random.Random) -> str:
        named = [f"{skill} question {rng.randrange(10**6)}" for skill in HALVES[kind] or (kind,)]
        return f"{number}. {kind}: {' & '.join(named)}" if HALVES[kind] else f"{number}. {named[0]}"


@dataclass(frozen=True, slots=True)
class Worker:
    """A member to be found."""

    skills: str
    right: float = SKILLED  # within its skills
    keys: str = ""  # further lines of TOML

    def toml(self, name: str) -> str:
        """Return the member's table."""
        model = f"reader?right={self.right}&outside={CHANCE}"
        return f'[members.{name}]\nskills = "{self.skills}"\nmodel = "{model}"\n{self.keys}\n'


@dataclass(frozen=True, slots=True)
class Case:
    """A team, and how often each kind of line must be right."""

    name: str
    workers: Mapping[str, Worker]
    right: Mapping[str, float]
    depth: int = 2
    makes: bool = False  # whether hosts make those in the reserve

    @property
    def expected(self) -> float:
        """Return how often both lines must be right, all pairs of kinds being equally frequent."""
        pairs = [*combinations(HALVES, 2)]
        return sum(math.prod(self.right[kind] for kind in pair) for pair in pairs) / len(pairs)

    def file(self, folder: Path) -> Path:
        """Write the team's file; return its path."""
        path = folder / f"{self.name.replace(' ', '-').replace(',', '')}.toml"
        workers = "".join(worker.toml(name) for name, worker in self.workers.items())
        host = f'[members.host]\nmodel = "reader?right={CHANCE}"\n'
        makes = 'places = "make"\n' if self.makes else ""
        form = f'[formation]\nmember = "host"\ndepth = {self.depth}\n{makes}'
        path.write_text(f"{host}{workers}{form}")
        return path


def cases() -> Iterator[Case]:
    """Yield all cases."""
    leads = {f"{kind}_lead": Worker(kind, LEAD) for kind, halves in HALVES.items() if halves}
    skills = [skill for kind, halves in HALVES.items() for skill in halves or (kind,)]
    all_there = {**leads, **{f"{skill}_member": Worker(skill) for skill in skills}}
    halves = SKILLED**2
    usual = {kind: halves if two else SKILLED for kind, two in HALVES.items()}
    yield Case("all registered, groups in groups", all_there, usual)

    alone = {kind: LEAD if two else SKILLED for kind, two in HALVES.items()}
    yield Case("all registered, one group", all_there, alone, depth=1)

    without = {name: worker for name, worker in all_there.items() if name != "law_member"}
    yield Case("nobody for law, whom the host replaces", without, {**usual, "law": CHANCE})

    dead = {**all_there, "optics_member": Worker("optics", keys=CRASHES)}
    yield Case("the optician crashes, nobody else", dead, {**usual, "science": CHANCE * SKILLED})
    another = {**dead, "other_member": Worker("optics")}
    yield Case("the optician crashes, another one is registered", another, usual)

    led = {**all_there, "science_lead": Worker("science", keys=CRASHES)}
    yield Case("the lead of science crashes, and the optician forms the group", led, usual)

    fixed = {name: all_there[f"{name}_member"] for name in ("law", "music", "history")}
    fixed |= {name: all_there[name] for name in ("science_lead", "optics_member", "heat_member")}
    yield Case("six members of fixed roles", fixed, {**usual, "medicine": CHANCE})
    for count, right in ((6, usual), (2, {**usual, "science": CHANCE**2, "medicine": CHANCE**2})):
        made = {f"worker{n}": Worker("", keys="reserve = true") for n in range(1, count + 1)}
        name = f"{count} members whose roles hosts design"
        yield Case(name, made, right, makes=True)


def line(case: Case, tasks: int, folder: Path) -> str:
    """Run a case; return its row of the table."""
    results = pa.evaluate(
        Domains,
        team=str(case.file(folder)),
        model="reader",
        n=tasks,
        run=folder / f"run-{case.file(folder).stem}",
        workers=0,
        progress=False,
    )
    assert results.success is not None and results.interval is not None
    low, high = results.interval
    verdict = "holds" if low <= case.expected <= high else "outside"
    formed = [len(turn["groups"]) for episode in results.episodes for turn in facts_of(episode)]
    return (
        f"| {case.name} | {case.expected:.3f} | {results.success:.3f} ({low:.3f} to {high:.3f}) | "
        f"{sum(formed) / len(formed):.2f} | {results.data['turns']:.1f} | {verdict} |"
    )


HEAD = "| team | formula | success, 95 % | groups | replies | |"


if __name__ == "__main__":
    sys.exit(run_cases(__doc__, "groups", 2000, HEAD, cases(), line))
