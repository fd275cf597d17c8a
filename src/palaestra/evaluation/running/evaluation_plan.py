"""The plan of an evaluation: its cells, stored in the run so that it can be resumed and reported.

A cell is one agent with one model on some tasks of one environment under one seed. A run folder
holds one plan, and its episodes lie in one phase per cell: `eval/SPLIT` for a single cell, else
`eval/SPLIT/AGENT/MODEL/FAMILY/WORLD/seed-N`. So `palaestra show` lists the cells of a run as its
phases, and `palaestra export --phase eval/test/react` exports all cells of one agent. An episode's
group is the number of its task in the split: shards and other runs align by it. An episode's
samples depend on its key, seed and model alone, so neither the order of the cells nor their
sharding changes a score.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from palaestra.core.budget import Budget
from palaestra.core.errors import InputError
from palaestra.core.model import Sampling
from palaestra.core.task import Split
from palaestra.evaluation.running.suite import Suite
from palaestra.evaluation.statistics.costs import Price

DOCUMENT = "plan"  # the document of a run that holds it
CONTEXT = 2048  # tokens of a conversation with a model in this process, by default


@dataclass(frozen=True, slots=True)
class Cell:
    """One agent with one model on some tasks of one environment."""

    phase: str  # of its episodes
    environment: str
    agent: str
    model: str
    roles: dict[str, str]  # models of other roles and players
    seed: int  # of the sampling
    split: Split
    tasks: tuple[int, ...]  # numbers in the split, of the whole cell in any shard
    repeats: int
    turns: int  # at most, per episode
    max_tokens: int | None  # per reply; None: each model's own default
    temperature: float
    seconds: float | None  # at most, per episode
    tokens: int | None  # sampled at most, per episode
    weight: float = 1.0  # in the mean over environments
    total_tokens: int | None = None  # read and sampled at most, per episode
    tried: int | None = None  # actions in trials at most, per episode
    reasoning_tokens: int | None = None  # at most, per reply
    context: int = CONTEXT  # of models in this process
    keep_thoughts: bool = False  # of models in this process; see `renderer_of`
    player_budget: Budget = Budget()  # of each of several players

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.max_tokens, reasoning_tokens=self.reasoning_tokens)

    @property
    def budget(self) -> Budget:
        """What an episode may spend."""
        return Budget(self.turns, self.tokens, self.total_tokens, self.seconds, tried=self.tried)

    @property
    def title(self) -> str:
        return f"{self.agent} with {self.model} on {self.environment} ({self.split})"


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `of`-th task of each cell, starting with the `number`-th (from 1)."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, slots=True)
class Factor:
    """What the environments of an evaluation differ in, whose tasks are the same by number."""

    name: str
    base: str  # the environment with which the others are compared


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that an evaluation has to run."""

    cells: tuple[Cell, ...]
    suite: Suite | None = None
    shard: Shard | None = None
    prices: dict[str, Price] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # impossible combinations, and why
    factor: Factor | None = None

    def numbers(self, cell: Cell) -> tuple[int, ...]:
        """Return the task numbers of a cell that this run's shard evaluates."""
        if self.shard is None:
            return cell.tasks
        return cell.tasks[self.shard.number - 1 :: self.shard.of]

    @property
    def episodes(self) -> int:
        return sum(len(self.numbers(cell)) * cell.repeats for cell in self.cells)

    @property
    def tasks(self) -> int:
        """The number of distinct tasks, those of other shards included."""
        return len({(cell.environment, task) for cell in self.cells for task in cell.tasks})

    @property
    def models(self) -> set[str]:
        """The names of all models, those of roles included."""
        return {name for cell in self.cells for name in (cell.model, *cell.roles.values())}


def as_json(plan: Plan) -> Any:
    """Return the plan as a JSON document."""
    return _PLAN.dump_python(plan, mode="json")


def from_json(document: Any, where: object) -> Plan:
    """Restore the plan that `as_json` wrote into the run `where`.

    Raises:
        InputError: the run has no plan (a training run, say), or another version wrote it.
    """
    if document is None:
        raise InputError(f"'{where}' is no evaluation; see what it is with `palaestra show`.")
    try:
        return _PLAN.validate_python(document)
    except ValidationError as error:
        keys = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InputError(
            f"The plan of '{where}' cannot be read ('{keys}' is invalid); evaluate again, or use "
            "the version of palaestra that wrote it."
        ) from None


def phase_of(split: Split, agent: str, model: str, environment: str, seed: int) -> str:
    """Return the phase of one cell among several."""
    family, slash, rest = environment.partition("/")
    name = f"{_plain(family)}/{_plain(rest)}" if slash else _plain(environment)
    return f"eval/{split}/{_plain(agent)}/{_plain(model)}/{name}/seed-{seed}"


def parse_shard(text: str) -> Shard:
    """Parse the shard `K/N`; raise InputError for anything else."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"--shard {text} is invalid; write K/N with K from 1 to N, such as 1/4.")
    return Shard(int(match[1]), int(match[2]))


def _plain(name: str) -> str:
    """Replace the characters that are special in a path, a shell or a URL."""
    plain = re.sub(r"[^\w.:@+-]+", "-", name).strip("-")
    if plain == name:
        return name
    return f"{plain}-{hashlib.blake2b(name.encode(), digest_size=2).hexdigest()}"


_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
