"""Parts of eval runs, made by hand, for the tests of leaderboards and of advice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from palaestra.core.task import Split
from palaestra.evaluation.reports.cell_samples import Part, Sample
from palaestra.evaluation.running.evaluation_plan import Cell
from palaestra.evaluation.running.suite import Entry, Suite

WORLD, OTHER = "probe/umbrella-4", "probe/memory-4"


def cell(
    model: str = "m", environment: str = WORLD, tasks: int | tuple[int, ...] = 4, **given: Any
) -> Cell:
    terms: dict[str, Any] = {
        "phase": f"eval/test/direct/{model}/{environment}/seed-{given.get('seed', 1)}",
        "environment": environment,
        "agent": "direct",
        "model": model,
        "roles": {},
        "seed": 1,
        "split": Split.TEST,
        "tasks": tuple(range(tasks)) if isinstance(tasks, int) else tasks,
        "repeats": 1,
        "turns": 6,
        "max_tokens": 8,
        "temperature": 1.0,
        "seconds": None,
        "tokens": None,
    }
    return Cell(**(terms | given))


def sample(task: int, solved: bool, **given: Any) -> Sample:
    terms: dict[str, Any] = {
        "task": task,
        "seed": 1,
        "member": 0,
        "scored": True,
        "infrastructure": False,
        "solved": float(solved),
        "progress": None,
        "reward": float(solved),
        "turns": 3,
        "invalid": 0,
        "tokens": 100.0,
        "seconds": 0.5,
        "money": None,
    }
    return Sample(**(terms | given))


def part(
    of: Cell,
    samples: Sequence[Sample],
    *,
    day: int = 1,
    suite: Suite | None = None,
    version: str = "0.1.0",
) -> Part:
    planned = frozenset((t, of.seed, m) for t in of.tasks for m in range(of.repeats))
    return Part(of, planned, tuple(samples), datetime(2026, 1, day, tzinfo=UTC), suite, version)


def outcome(solved: str, **given: Any) -> list[Sample]:
    """One sample per letter: `1` solved, `0` not."""
    return [sample(task, letter == "1", **given) for task, letter in enumerate(solved)]


def simple(model: str, solved: str, environment: str = WORLD, **given: Any) -> Part:
    return part(cell(model, environment, len(solved)), outcome(solved, **given))


def suite(*worlds: tuple[str, int, float], version: int = 1) -> Suite:
    """Of worlds with so many tasks and such a weight."""
    entries = tuple(Entry(environment=id, tasks=n, weight=weight) for id, n, weight in worlds)
    return Suite(name="made", version=version, entries=entries)
