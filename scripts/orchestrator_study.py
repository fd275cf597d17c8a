"""Plants stalls, dead and late workers, and compares flat with hierarchical teams.

    python scripts/orchestrator_study.py [--tasks 2000] [--folder FOLDER] [--write]

A piece of work of one of three kinds has to be done within six turns; one of eight answers is right
and a wrong one changes nothing. The orchestrator and its workers are the model `reader`: a worker
is right with one probability within its skills and with another one outside them. Who works in
which turn then follows, and with it how often the team must succeed. Tasks of three pieces compare
a flat team, whose members all propose, with a hierarchical one of the same workers (AgentOrchestra,
Zhang et al. 2025). A line holds if the formula's
value is in Wilson's 95 % interval of the run. `--write` puts the table into docs/results/teams.md,
between its markers.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

from results_page import run_cases

import palaestra as pa
from palaestra.core.agent import Agent
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode
from palaestra.core.errors import AgentFault
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.team_words import PLAN_ENTRIES, entries, instruction
from palaestra.environments.teams.votes import majority

KINDS = ("weigh", "paint", "lock")
ANSWERS = tuple("abcdefgh")
TURNS = 6
SKILLED, HELPER, CHANCE = 0.6, 0.3, 1 / len(ANSWERS)


class Piece(Environment, capabilities={"answer", "admissible"}, typical_turns=TURNS):
    """A piece of work; a wrong answer changes nothing."""

    instructions = f"Do the work: say one of {', '.join(ANSWERS)}."

    def reset(self, task: Task) -> Observation:
        rng = random.Random(f"piece {task.seed}")
        self.kind, self.right, self.turns = rng.choice(KINDS), rng.choice(ANSWERS), 0
        return Observation(f"Please {self.kind} it.")

    def step(self, action: Action) -> Transition:
        if action.text not in ANSWERS:
            return Transition(Observation(self.instructions), valid=False)
        self.turns += 1
        if action.text == self.right:
            return Transition(Observation("Done."), 1.0, terminated=True, success=True)
        return Transition(Observation(f"Please {self.kind} it."), truncated=self.turns == TURNS)

    def admissible(self) -> Sequence[str]:
        return ANSWERS

    def answer(self) -> Action:
        return Action(self.right)


class Pieces(Piece):
    """Three pieces of work, one of each kind, one after the other."""

    def reset(self, task: Task) -> Observation:
        rng = random.Random(f"pieces {task.seed}")
        self.left = [(kind, rng.choice(ANSWERS)) for kind in rng.sample(KINDS, len(KINDS))]
        self.turns = 0
        return self._next()

    def step(self, action: Action) -> Transition:
        done = super().step(action)
        if done.valid and not done.terminated:
            seen = Observation(instruction(f"{self.kind} it"))
            return Transition(seen, truncated=done.truncated)
        if not done.terminated or not self.left:
            return done
        return Transition(self._next(), truncated=self.turns == TURNS)

    def _next(self) -> Observation:
        self.kind, self.right = self.left.pop(0)
        return Observation(instruction(f"{self.kind} it"))


class Crashing(Agent):
    """An agent that crashes as soon as it is given work."""

    name = "crashing"

    async def run(self, session: Session) -> None:
        raise AgentFault("crash", "planted")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of a team."""

    skills: str
    right: float = SKILLED  # within its skills
    outside: float = CHANCE
    keys: str = ""  # further lines of TOML

    def toml(self, name: str) -> str:
        """Return the worker's table."""
        model = f"reader?right={self.right}&outside={self.outside}"
        return f'[members.{name}]\nskills = "{self.skills}"\nmodel = "{model}"\n{self.keys}\n'


@dataclass(frozen=True, slots=True)
class Case:
    """A team, and who must work in each turn by kind of work."""

    environment: ClassVar[type[Environment]] = Piece

    name: str
    workers: Mapping[str, Worker]
    working: Mapping[str, Sequence[str]]  # names by kind, one for each turn
    stalls: int = 2

    @property
    def expected(self) -> float:
        """Return how often the team must succeed, all kinds being equally frequent."""
        return sum(map(self._succeeds, KINDS)) / len(KINDS)

    def file(self, folder: Path) -> Path:
        """Write the team's file; return its path."""
        path = folder / f"{self.name.replace(' ', '-').replace(',', '')}.toml"
        workers = "".join(worker.toml(name) for name, worker in self.workers.items())
        end = f'[orchestrator]\nmember = "lead"\nstalls = {self.stalls}\n'
        path.write_text(f"[members.lead]\n{workers}{end}")
        return path

    def _succeeds(self, kind: str) -> float:
        """Return the probability that one of the turns is right."""
        workers = [self.workers[name] for name in self.working[kind]]
        right = [w.right if kind in w.skills.split(", ") else w.outside for w in workers]
        return 1 - math.prod(1 - p for p in right)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A team for tasks of three pieces, and how often its action is right for each of them."""

    environment: ClassVar[type[Environment]] = Pieces

    name: str
    head: str  # TOML before the workers
    protocol: str  # TOML after them
    right: Sequence[float]

    @property
    def expected(self) -> float:
        """Return how often three pieces are done within `TURNS`, in whatever order."""
        done = [1.0, *(0.0 for _ in self.right)]  # probability by the number of pieces
        for _ in range(TURNS):
            moved = [0.0, *(chance * p for chance, p in zip(done, self.right, strict=False))]
            kept = [chance * (1 - p) for chance, p in zip(done, self.right, strict=False)]
            done = [a + b for a, b in zip(moved, [*kept, done[-1]], strict=True)]
        return done[-1]

    def file(self, folder: Path) -> Path:
        """Write the team's file; return its path."""
        path = folder / f"{self.name.replace(' ', '-').replace(',', '').replace(':', '')}.toml"
        tables = "".join(Worker(kind).toml(f"{kind}er") for kind in KINDS)
        path.write_text(f"{self.head}{tables}{self.protocol}")
        return path


def most_frequent(skilled: int) -> float:
    """Return how often the most frequent of three proposals is right, of equals the first.

    Args:
        skilled: the place of the worker within whose skills the work is.
    """
    found = 0.0
    for proposals in product(ANSWERS, repeat=len(KINDS)):
        right = [SKILLED if place == skilled else CHANCE for place in range(len(KINDS))]
        chances = [
            p if answer == ANSWERS[0] else (1 - p) / (len(ANSWERS) - 1)
            for answer, p in zip(proposals, right, strict=True)
        ]
        found += math.prod(chances) * (majority(proposals) == ANSWERS[0])
    return found


HELPING = Worker("help", HELPER, HELPER)
WEIGHING, PAINTING, LOCKING = (Worker(kind) for kind in KINDS)
CRASHES = f'agent = "{Path(__file__).stem}:{Crashing.__name__}"'


def twice(*names: str) -> list[str]:
    """Return who works in each turn if two stalls bring the next worker."""
    return [name for name in names for _ in range(2)]


def cases() -> Iterator[Case]:
    """Yield all cases."""
    able = {"helper": HELPING, "weigher": WEIGHING, "painter": PAINTING}
    usual = {
        "weigh": twice("weigher", "helper", "painter"),
        "paint": twice("painter", "helper", "weigher"),
    }
    locked = {**usual, "lock": twice("locker", "helper", "weigher")}
    yield Case("all workers able", {**able, "locker": LOCKING}, locked)

    stuck = {**able, "locker": Worker("lock", 0.0, 0.0)}
    yield Case("one worker stuck", stuck, locked)
    never = {kind: [names[0]] * TURNS for kind, names in locked.items()}
    yield Case("one worker stuck, no new plans", stuck, never, stalls=100)

    dead = {**able, "locker": Worker("lock", keys=CRASHES)}
    helped = {**usual, "lock": twice("helper", "weigher", "painter")}
    yield Case("one worker dead", dead, helped)
    opened = {**usual, "lock": twice("opener", "helper", "weigher")}
    yield Case(
        "one worker dead, one with its skill", {**dead, "opener": Worker("open, lock")}, opened
    )

    yield Case("no worker for one kind", able, helped)
    late = {**able, "locker": Worker("lock", keys="from_turn = 3")}
    joined = {**usual, "lock": twice("helper", "locker", "weigher")}
    yield Case("no worker for one kind, a new one in turn 3", late, joined)


def comparisons() -> Iterator[Comparison]:
    """Yield a flat and a hierarchical team of the same three workers."""
    stages = '[[stage]]\ndo = "propose"\n[[stage]]\ndo = "count"\n'
    places = range(len(KINDS))
    frequent = [most_frequent(place) for place in places]
    flat, hierarchical = "the most frequent proposal", "work by skills"
    yield Comparison(f"three pieces, flat: {flat}", 'see = "own"\n', stages, frequent)
    led = '[orchestrator]\nmember = "lead"\nstalls = 100\n'
    name = f"three pieces, hierarchical: {hierarchical}"
    yield Comparison(name, "[members.lead]\n", led, [SKILLED for _ in places])


def turns_before_new_plans(episode: Episode) -> Iterator[int]:
    """Yield for each new plan how many turns there were since the plan before it."""
    planned, turns = False, 0
    for step in episode.steps:
        if step.before.turn == "lead" and len(entries(step.action.text, PLAN_ENTRIES)) == 3:
            if planned:
                yield turns
            planned, turns = True, 0
        turns += step.action.text in ANSWERS


def line(case: Case | Comparison, tasks: int, folder: Path) -> str:
    """Run a case; return its row of the table."""
    results = pa.evaluate(
        case.environment,
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
    waited = [turns for episode in results.episodes for turns in turns_before_new_plans(episode)]
    most = str(max(waited)) if waited else "no new plan"
    return (
        f"| {case.name} | {case.expected:.3f} | {results.success:.3f} ({low:.3f} to {high:.3f}) | "
        f"{most} | {results.data['turns']:.1f} | {verdict} |"
    )


HEAD = "| team | formula | success, 95 % | turns before a new plan, at most | replies | |"


if __name__ == "__main__":
    sys.exit(run_cases(__doc__, "orchestrator", 2000, HEAD, [*cases(), *comparisons()], line))
