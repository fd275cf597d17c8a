"""Tasks, and the sets they come from.

A task set numbers its tasks; the seed of task `i` of a split is
`3 * i + (0 for train, 1 for validation, 2 for test)`, so no seed belongs to two
splits, whatever the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from palaestra.core.errors import InputError, UnknownName


class Split(StrEnum):
    """The split of a task set."""

    TRAIN = "train"  # rollouts and demonstrations are sampled from here
    VALIDATION = "validation"  # may guide choices (checkpoints, settings)
    TEST = "test"  # held out: only ever evaluated


def parse_split(name: str) -> Split:
    """Return the split of that name; raises UnknownName for any other name."""
    try:
        return Split(name)
    except ValueError:
        raise UnknownName("split", name, list(Split)) from None


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do in one environment; immutable and serialisable."""

    id: str  # unique within the environment, e.g. "test/17"
    environment: str  # the environment's id, e.g. "babyai/GoToLocalS5N2"
    seed: int  # determines the environment completely, together with `parameters`
    split: Split = Split.TRAIN
    instruction: str = ""  # empty where the first observation states the mission
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of one environment: `size` per split (None: endless)."""

    environment: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    size: int | None = None

    def count(self, split: Split) -> int | None:
        """Return the number of tasks in a split; None: endless."""
        return self.size

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`; a finite set starts over after its last task.

        Raises:
            InputError: the split has no tasks.
        """
        count = self.count(split)
        if count == 0:
            having = [other for other in Split if self.count(other) != 0]
            raise InputError(
                f"The environment '{self.environment}' has no {split} tasks; "
                f"it has {' and '.join(having) or 'none at all'}."
            )
        if count is not None:
            index %= count
        offset = list(Split).index(split)
        return Task(
            id=f"{split}/{index}",
            environment=self.environment,
            seed=3 * index + offset,
            split=split,
            parameters=self._parameters(split, index),
        )

    def take(self, split: Split, count: int, start: int = 0) -> list[Task]:
        return [self.task(split, start + i) for i in range(count)]

    def take_once(self, split: Split, count: int) -> list[Task]:
        """Return `count` tasks from the first on, or all of a finite split that has fewer."""
        return self.take(split, min(count, self.count(split) or count))

    def _parameters(self, split: Split, index: int) -> Mapping[str, Any]:
        return self.parameters


@dataclass(frozen=True, slots=True)
class ListedTasks(TaskSet):
    """A published set of tasks: each split is a list of parameters, in order."""

    rows: Mapping[Split, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def count(self, split: Split) -> int:
        return len(self.rows.get(split, ()))

    def _parameters(self, split: Split, index: int) -> Mapping[str, Any]:
        return {**self.parameters, **self.rows[split][index]}
