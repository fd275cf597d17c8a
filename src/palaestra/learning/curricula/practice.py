"""Practice: which training tasks a step rolls out, by the results so far.

The choice is among *items*: levels (environments, each an endless set of
tasks), or a fixed number of tasks that return again and again. Without a choice,
every step practises on tasks that were never seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from palaestra.core.episode import Episode, Key, derive_seed
from palaestra.core.model import is_of
from palaestra.core.task import Split, Task, TaskSet
from palaestra.learning.curricula.task_sampling import TaskHistory, sample_tasks
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.success_replay import SuccessBuffer

Weigh = Callable[[Sequence[TaskHistory]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of one rollout that later choices depend on."""

    key: Key
    environment: str
    task: str  # the task's id within its environment
    solved: bool


Past = Mapping[int, Sequence[Attempt]]
"""The scored rollouts by step, each step's in the order of their keys."""


@dataclass(frozen=True, slots=True)
class Practice:
    """The tasks to practise on, and the rule that chooses among them."""

    sets: tuple[TaskSet, ...]  # one per level; with `fixed`, a single one
    seed: int  # of the run
    weigh: Weigh | None = None  # None: new tasks of the first set at every step
    fixed: int | None = None  # restrict to this number of tasks of the first set

    def tasks(self, step: int, count: int, past: Past) -> list[Task]:
        """Return the tasks of a step (1-based), chosen by the results in `past`."""
        start = self._first + (step - 1) * count
        if self.weigh is None:
            return self.sets[0].take(Split.TRAIN, count, start)
        weights = self.weigh(self.histories(past))
        chosen = sample_tasks(weights, count, seed=derive_seed("draw", self.seed, step))
        if self.fixed is not None:
            return [self.sets[0].task(Split.TRAIN, self._first + item) for item in chosen]
        return [self.sets[item].task(Split.TRAIN, start + n) for n, item in enumerate(chosen)]

    @property
    def _first(self) -> int:
        """Return the number of the first training task."""
        return derive_seed("tasks", self.seed) % 1_000_000 * 1_000

    def histories(self, past: Past) -> list[TaskHistory]:
        """Return the history of each item: whether its rollouts succeeded, oldest first."""
        results: list[list[float]] = [[] for _ in range(self.fixed or len(self.sets))]
        items = {tasks.environment: item for item, tasks in enumerate(self.sets)}
        if self.fixed is not None:
            numbers = range(self.fixed)
            items = {self.sets[0].task(Split.TRAIN, self._first + n).id: n for n in numbers}
        for step in sorted(past):
            for attempt in past[step]:
                name = attempt.environment if self.fixed is None else attempt.task
                results[items[name]].append(float(attempt.solved))
        return [TaskHistory(tuple(found)) for found in results]


def attempts(episodes: Sequence[Episode]) -> list[Attempt]:
    """Return the attempts of a step's rollouts."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    return [
        Attempt(e.key, e.task.environment, e.task.id, e.outcome.solved)
        for e in sorted(scored, key=lambda e: (e.key.group, e.key.member))
    ]


def replayed(
    episodes: Sequence[Episode],
    past: Past,
    recall: Callable[[Key], Episode | None],
    shaping: Shaping,
    policy: str,
    *,
    seed: int,
) -> list[Episode]:
    """Return the step's episodes, with a stored success in place of a rollout of hopeless groups.

    Source: ARPO (Lu et al. 2025), release; see `SuccessBuffer`. The stored episode takes the
    key of the rollout that it replaces, and keeps the log-probabilities of its own sampler.
    """
    buffer = SuccessBuffer()
    for step in sorted(past):
        for attempt in past[step]:
            if attempt.solved:
                stored = buffer.keys.get(attempt.task, ())
                keys = {**buffer.keys, attempt.task: (*stored, attempt.key)[-buffer.capacity :]}
                buffer = SuccessBuffer(buffer.capacity, keys)
    found = list(episodes)
    indices: dict[int, list[int]] = {}
    for index, episode in enumerate(episodes):
        if episode.outcome.scored and any(is_of(call.policy, policy) for call in episode.calls):
            indices.setdefault(episode.key.group, []).append(index)
    for group, members in indices.items():
        trajectories = [shaping.trajectory(episodes[i], policy) for i in members]
        task = episodes[members[0]].task.id
        key = buffer.replacement(task, trajectories, seed=derive_seed("replay", seed, group))
        success = recall(key) if key is not None else None
        if success is not None:
            found[members[0]] = replace(success, key=episodes[members[0]].key)
    return found
