"""The difference of two runs on the same tasks, task by task, with its uncertainty.

Tasks are the same if environment, id, seed, instruction and parameters are equal. Tasks of only
one run, and tasks without a valid result in both, are counted and left out. Every difference is
the second run minus the first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.task import Task
from palaestra.evaluation.statistics.episode_metrics import METRICS, Measure, success
from palaestra.evaluation.statistics.intervals import Interval, paired_difference, success_interval
from palaestra.evaluation.statistics.paired import flips, mcnemar, permutation_test
from palaestra.evaluation.statistics.player_results import refuse_games
from palaestra.evaluation.statistics.power import ALPHA, detectable, observed_spread, warning

MEASURES = (
    "reward",
    "progress",
    "turns",
    "sampled_tokens",
    "prompt_tokens",
    "seconds",
    "invalid_rate",
    "repetition_rate",
    "loop_rate",
)

SAMPLES = 2_000  # resamples per measure: distinct values make a bootstrap slow


@dataclass(frozen=True, slots=True)
class Flip:
    """A task whose success changed."""

    task: str  # its id, and its environment if there are several
    scores: tuple[float, float]  # success in the first and the second run, over repeats
    episodes: tuple[str, str]  # the key of an example episode in each run


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure in both runs, over the tasks with a value in both."""

    means: tuple[float, float]
    difference: Interval | None  # None for a single task
    tasks: int


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes from the first run to the second."""

    environments: tuple[str, ...]  # of the tasks in common
    tasks: int  # in common, with a valid result in both runs
    only: tuple[int, int]  # tasks of only the first, of only the second run
    broken: int  # tasks in common without a valid result in both runs
    success: tuple[Interval | None, Interval | None]
    difference: Interval | None  # of success; None for fewer than two tasks
    mcnemar: float | None  # p-value; None if repeats gave shares between 0 and 1
    permutation: float  # p-value
    gained: tuple[Flip, ...]
    lost: tuple[Flip, ...]
    same: int
    measures: dict[str, Measured]
    detectable: float  # the smallest difference of success that is detected 80 % of the time
    warning: str | None  # set if no difference was found and the tasks are too few to find one


def diff(a: Sequence[Episode], b: Sequence[Episode], names: tuple[str, str] = ("A", "B")) -> Diff:
    """Compare two lists of episodes on their common tasks.

    Args:
        a: of the first run.
        b: of the second run.
        names: of the runs, for error messages.

    Raises:
        InputError: they share no environment or no task, a task of the same id differs, or they
            are games between players, who have no common success.
        GroupTooSmall: no common task has a valid result in both runs.
    """
    refuse_games(a, names)
    first, second = _by_task(a), _by_task(b)
    common = _common(first, second, names)
    scores = _means(first, success), _means(second, success)
    paired = [task for task in common if all(task in of for of in scores)]
    if not paired:
        raise GroupTooSmall(
            f"None of the {len(common)} tasks in common has a valid result in both {names[0]} "
            f"and {names[1]}, since their episodes broke; run them again."
        )
    before = {task: scores[0][task] for task in paired}
    after = {task: scores[1][task] for task in paired}
    found = flips(before, after)
    p_value = permutation_test([*before.values()], [*after.values()])
    binary = all(score in (0.0, 1.0) for of in (before, after) for score in of.values())
    one, two = list(before.values()), list(after.values())
    changes = [y - x for x, y in zip(one, two, strict=True)]
    environments = tuple(sorted({first[task][0].task.environment for task in paired}))

    def flipped(task: str) -> Flip:
        whole = first[task][0].task
        gain = after[task] > before[task]
        return Flip(
            task=whole.id if len(environments) == 1 else f"{whole.environment} {whole.id}",
            scores=(before[task], after[task]),
            episodes=(_example(first[task], not gain), _example(second[task], gain)),
        )

    return Diff(
        environments=environments,
        tasks=len(paired),
        only=(len(first) - len(common), len(second) - len(common)),
        broken=len(common) - len(paired),
        success=(success_interval(one), success_interval(two)),
        difference=_difference(one, two),
        mcnemar=mcnemar(len(found.gained), len(found.lost)) if binary else None,
        permutation=p_value,
        gained=tuple(flipped(task) for task in _in_order(found.gained, first)),
        lost=tuple(flipped(task) for task in _in_order(found.lost, first)),
        same=len(found.same),
        measures=_measures(first, second, paired),
        detectable=detectable(len(changes), observed_spread(changes)),
        warning=warning(changes) if p_value > ALPHA else None,
    )


def identity(task: Task) -> str:
    """Return everything that defines a task, as one string."""
    return json.dumps([*_name(task), *_content(task)], sort_keys=True, default=str)


# ── which tasks are the same ─────────────────────────────────────────────────

ByTask = Mapping[str, Sequence[Episode]]


def _name(task: Task) -> list[object]:
    return [task.environment, task.id]


def _content(task: Task) -> list[object]:
    return [task.seed, task.instruction, dict(task.parameters)]


def _by_task(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    found: dict[str, list[Episode]] = {}
    for episode in episodes:
        found.setdefault(identity(episode.task), []).append(episode)
    return found


def _common(first: ByTask, second: ByTask, names: tuple[str, str]) -> list[str]:
    """Return the common tasks in the order of the first run."""
    for name, of in zip(names, (first, second), strict=True):
        if not of:
            raise InputError(f"{name} has no finished episode; name a run with some.")
    environments = [sorted({e[0].task.environment for e in of.values()}) for of in (first, second)]
    if not set(environments[0]) & set(environments[1]):
        one, other = (", ".join(of) for of in environments)
        raise InputError(
            f"{names[0]} was in {one} and {names[1]} in {other}; "
            "compare runs in the same environment."
        )
    _check_same(first, second, names)
    common = [task for task in first if task in second]
    if not common:
        raise InputError(
            f"{names[0]} has the tasks {_span(first)} and {names[1]} {_span(second)}, with none "
            "in common; compare runs on the same tasks."
        )
    return common


def _check_same(first: ByTask, second: ByTask, names: tuple[str, str]) -> None:
    """Raise if a task of the same environment and id differs between the runs."""
    theirs = {json.dumps(_name(of[0].task)): of[0].task for of in second.values()}
    for episodes in first.values():
        ours = episodes[0].task
        other = theirs.get(json.dumps(_name(ours)), ours)
        if identity(other) == identity(ours):
            continue
        parts = ("seed", "instruction", "parameters")
        differing = [part for part in parts if getattr(ours, part) != getattr(other, part)]
        raise InputError(
            f"The task {ours.id} of {ours.environment} is not the same in {names[0]} and "
            f"{names[1]}: other {' and '.join(differing)}; compare runs on the same tasks."
        )


def _span(of: ByTask) -> str:
    ids = [episodes[0].task.id for episodes in of.values()]
    return ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"


# ── scores ───────────────────────────────────────────────────────────────────


def _means(of: ByTask, measure: Measure) -> dict[str, float]:
    """Return the mean of `measure` over each task's scored episodes with a value."""
    found: dict[str, float] = {}
    for task, episodes in of.items():
        values = [measure(episode) for episode in episodes if episode.outcome.scored]
        known = [value for value in values if value is not None]
        if known:
            found[task] = sum(known) / len(known)
    return found


def _measures(first: ByTask, second: ByTask, paired: Sequence[str]) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for name in MEASURES:
        one, two = _means(first, METRICS[name]), _means(second, METRICS[name])
        tasks = [task for task in paired if task in one and task in two]
        if tasks:
            before, after = [one[task] for task in tasks], [two[task] for task in tasks]
            found[name] = Measured(
                means=(sum(before) / len(tasks), sum(after) / len(tasks)),
                difference=_difference(before, after, samples=SAMPLES),
                tasks=len(tasks),
            )
    return found


def _difference(
    before: Sequence[float], after: Sequence[float], samples: int = 10_000
) -> Interval | None:
    return paired_difference(after, before, samples=samples) if len(before) > 1 else None


def _in_order(tasks: Sequence[str], first: ByTask) -> list[str]:
    positions = {task: position for position, task in enumerate(first)}
    return sorted(tasks, key=lambda task: positions[task])


def _example(episodes: Sequence[Episode], solved: bool) -> str:
    """Return the key of the first scored episode with that outcome, else of the first scored."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    fitting = [episode for episode in scored if episode.outcome.solved is solved]
    return str((fitting or scored)[0].key)
