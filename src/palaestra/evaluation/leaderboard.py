"""Leaderboards: contenders (an agent with a model) side by side, from any number of eval runs.

The parts of one evaluation that lie in several runs (shards, seeds, models one by one) are
joined by what their cells say: episodes of the same contender, world and terms belong
together, whatever run holds them, and joined shards score exactly as one run would have.
What does not compare is never mixed: it is left out, with the reason. A contender that
lacks worlds or episodes is shown, but not ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestra.core.errors import InputError
from palaestra.evaluation import overall
from palaestra.evaluation.plan import Cell
from palaestra.evaluation.samples import Part, Sample
from palaestra.evaluation.statistics import Interval
from palaestra.evaluation.suite import METRICS, Suite, differences

OF_WORLDS = ("split", "turns", "seconds", "tokens", "total_tokens", "tried")
"""Terms in which all contenders must agree on a world; the others are a contender's own."""

COSTS = ("tokens", "seconds", "turns", "money")
REFERENCE = "expert"
OF_SOME = ("progress",)  # not every world declares it: the mean is of those that do


@dataclass(frozen=True, slots=True)
class Standing:
    """One contender on one world; means are over scored episodes, tasks weighing alike."""

    environment: str
    by_task: dict[int, float]  # success of each task with a score, over seeds and repeats
    costs: dict[str, dict[int, float]]  # of COSTS, those that are known, by task
    means: dict[str, float]  # of metrics besides success, those that exist
    episodes: int
    planned: int
    faults: int  # episodes without a score

    @property
    def success(self) -> Interval | None:
        return overall.rate(list(self.by_task.values())) if self.by_task else None

    @property
    def complete(self) -> bool:
        return bool(self.by_task) and self.episodes >= self.planned


@dataclass(frozen=True, slots=True)
class Contender:
    """An agent with a model, as it was set up."""

    name: str
    agent: str
    model: str
    standings: dict[str, Standing]  # by environment
    success: Interval | None  # over its worlds; None without any score
    means: dict[str, float]  # over its worlds, by metric
    weights: dict[str, float]  # by environment
    missing: tuple[str, ...]  # what keeps it from being ranked

    @property
    def ranked(self) -> bool:
        return not self.missing

    @property
    def reference(self) -> bool:
        """Whether it is the worlds' own solution: a bound to compare with, and no choice."""
        return self.model == REFERENCE

    @property
    def scores(self) -> dict[str, dict[int, float]]:
        return {world: standing.by_task for world, standing in self.standings.items()}


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Contenders, best first; those that are not ranked stand behind."""

    suite: Suite | None
    weights: dict[str, float]  # by environment
    contenders: tuple[Contender, ...]
    notes: tuple[str, ...] = ()  # what was left out or joined, and why
    metrics: tuple[str, ...] = ("success", "progress", "turns", "tokens", "seconds", "money")

    @property
    def ranked(self) -> list[Contender]:
        return [contender for contender in self.contenders if contender.ranked]

    def front(self, cost: str) -> list[Contender]:
        """The ranked contenders that none beats in both success and cost, cheapest first.

        The worlds' own solutions are no contenders for it.

        Raises:
            InputError: the cost is unknown, or not recorded of all of them.
        """
        if cost not in COSTS:
            raise InputError(f"There is no cost '{cost}'; known: {', '.join(COSTS)}.")
        choices = [contender for contender in self.ranked if not contender.reference]
        lacking = [c.name for c in choices if cost not in c.means]
        if lacking:
            raise InputError(
                f"The {cost} of {lacking[0]} are not known; choose another cost"
                f"{', or evaluate it with --price' if cost == 'money' else ''}."
            )
        found: list[Contender] = []
        for one in sorted(choices, key=lambda c: (c.means[cost], -_rate(c))):
            if not found or _rate(one) > _rate(found[-1]):
                found.append(one)
        return found


def build(parts: Sequence[Part], suite: Suite | None = None) -> Leaderboard:
    """The leaderboard of these parts.

    Args:
        parts: see `samples.read`; of any number of runs, in any order.
        suite: what counts, and how much; None: that of the parts, if they agree on one, else
            every world that they have, with the first one's terms.

    Raises:
        InputError: nothing is left to compare.
    """
    ordered = sorted(parts, key=lambda part: (part.created, part.cell.phase))
    notes: list[str] = []
    if suite is None:
        suite = _agreed(ordered, notes)
    kept = _comparable(ordered, suite, notes)
    if not kept:
        reasons = f" ({notes[0]})" if notes else ""
        raise InputError(f"The runs hold nothing that can be compared{reasons}.")
    weights = {part.cell.environment: part.cell.weight for part in reversed(kept)}
    if suite is not None:
        weights = {entry.environment: entry.weight for entry in suite.entries}
    weights = dict(sorted(weights.items()))

    grouped: dict[tuple[Any, ...], list[Part]] = {}
    for part in kept:
        grouped.setdefault(_who(part.cell), []).append(part)
    names = _names([of[0].cell for of in grouped.values()])
    contenders = [
        _contender(name, of, weights, notes)
        for name, of in zip(names, grouped.values(), strict=True)
    ]
    contenders.sort(key=lambda c: (not c.ranked, -_rate(c), c.name))
    versions = sorted({part.version for part in kept})
    if len(versions) > 1:
        notes.append(f"the runs are of several versions of palaestra: {', '.join(versions)}")
    board = Leaderboard(suite, weights, tuple(contenders), tuple(dict.fromkeys(notes)))
    return board if suite is None else replace(board, metrics=suite.metrics)


def _agreed(parts: Sequence[Part], notes: list[str]) -> Suite | None:
    """The suite of all parts; None where there is none, or not one."""
    suites = {part.suite.hash: part.suite for part in parts if part.suite is not None}
    if len(suites) == 1 and all(part.suite is not None for part in parts):
        return next(iter(suites.values()))
    of = list(suites.values())
    for other in of[1:]:
        why = "; ".join(differences(of[0], other)[:3])
        notes.append(
            f"{of[0].title} and {other.title} are not comparable as wholes: {why}; worlds with "
            "equal terms are compared one by one"
        )
    return None


def _comparable(parts: Sequence[Part], suite: Suite | None, notes: list[str]) -> list[Part]:
    """The parts that agree with the suite, or with the first part on their world."""
    entries = {entry.environment: entry for entry in suite.entries} if suite else {}
    first: dict[str, Cell] = {}
    kept: list[Part] = []
    for part in parts:
        cell = part.cell
        where = f"left out: {cell.agent} with {cell.model} on {cell.environment}"
        apart: list[str] = []
        if suite is not None:
            entry = entries.get(cell.environment)
            if entry is None:
                notes.append(f"{where}: the suite {suite.title} does not have that world")
                continue
            limits = suite.limits
            wanted = {"split": entry.split, **limits.model_dump()}
            apart = [
                f"{name} {has} against {value}"
                for name, value in wanted.items()
                if (has := getattr(cell, name)) != value
            ]
            if entry.turns not in (None, cell.turns):
                apart.append(f"turns {cell.turns} against {entry.turns}")
            if not set(cell.tasks) <= set(entry.numbers):
                apart.append(f"{len(cell.tasks)} other tasks against {len(entry.numbers)}")
        model = first.setdefault(cell.environment, cell) if not apart else cell
        for name in OF_WORLDS:
            one, other = getattr(cell, name), getattr(model, name)
            if one != other:
                apart.append(f"{name} {one} against {other}")
        if set(cell.tasks) != set(model.tasks):
            apart.append(f"{len(cell.tasks)} tasks against {len(model.tasks)} other ones")
        if apart:
            notes.append(f"{where}: {', '.join(dict.fromkeys(apart))}")
        else:
            kept.append(part)
    return kept


def _contender(
    name: str, parts: Sequence[Part], weights: Mapping[str, float], notes: list[str]
) -> Contender:
    standings = {}
    for world in weights:
        of = [part for part in parts if part.cell.environment == world]
        if of:
            standings[world] = _standing(world, of, name, notes)
    missing = [f"no result on {world}" for world in weights if world not in standings]
    for world, found in standings.items():
        if not found.complete:
            missing.append(f"{found.episodes} of {found.planned} episodes on {world}")
    scored = {w: s for w, s in standings.items() if s.success is not None}
    shares = [weights[world] for world in scored]
    means = {}
    for metric in METRICS:
        having = [world for world, s in scored.items() if metric in s.means]
        if having and (metric in OF_SOME or len(having) == len(scored)):
            whole = sum(weights[world] for world in having)
            means[metric] = sum(weights[w] * scored[w].means[metric] for w in having) / whole
    rates = [s.success for s in scored.values() if s.success is not None]
    cell = parts[0].cell
    success = overall.combined(rates, shares) if rates else None
    return Contender(
        name, cell.agent, cell.model, standings, success, means, dict(weights), tuple(missing)
    )


def _standing(world: str, parts: Sequence[Part], name: str, notes: list[str]) -> Standing:
    """One contender's episodes on one world, each taken once: the newest run's."""
    found: dict[tuple[int, int, int], Sample] = {}
    twice = 0
    for part in parts:  # oldest first
        for sample in part.samples:
            place = (sample.task, sample.seed, sample.member)
            twice += place in found
            found[place] = sample
    if twice:
        notes.append(f"{name} on {world}: {twice} episodes stand in two runs; the newer ones count")
    samples = [found[place] for place in sorted(found)]  # one order, whatever held them
    ended = [sample for sample in samples if not sample.infrastructure]
    scored = [sample for sample in ended if sample.scored]
    planned = frozenset().union(*(part.planned for part in parts))
    metrics = ("progress", "reward", *COSTS)
    tasks = {metric: of for metric in metrics if (of := _by_task(scored, metric))}
    known = {metric: sum(of.values()) / len(of) for metric, of in tasks.items()}
    taken = sum(sample.turns for sample in scored)
    if scored:
        known["invalid"] = sum(sample.invalid for sample in scored) / max(1.0, taken)
    return Standing(
        world,
        _by_task(scored, "solved"),
        {cost: tasks[cost] for cost in COSTS if cost in tasks},
        known,
        episodes=len(ended),
        planned=len(planned),
        faults=len(samples) - len(scored),
    )


def _by_task(samples: Sequence[Sample], metric: str) -> dict[int, float]:
    """Means over seeds and repeats; empty where an episode does not have it."""
    if any(getattr(sample, metric) is None for sample in samples):
        return {}
    values: dict[int, list[float]] = {}
    for sample in samples:
        values.setdefault(sample.task, []).append(getattr(sample, metric))
    return {task: sum(of) / len(of) for task, of in sorted(values.items())}


def _who(cell: Cell) -> tuple[Any, ...]:
    roles = tuple(sorted(cell.roles.items()))
    return (cell.agent, cell.model, roles, cell.temperature, cell.max_tokens)


def _names(cells: Sequence[Cell]) -> list[str]:
    """A short name for each, with what tells it from others of the same agent and model."""
    short = [f"{cell.agent}, {cell.model}" for cell in cells]
    often = Counter(short)
    names = []
    for cell, name in zip(cells, short, strict=True):
        if often[name] > 1:
            roles = "".join(f", {role}={model}" for role, model in sorted(cell.roles.items()))
            name += f" (temperature {cell.temperature:g}, {cell.max_tokens} tokens a reply{roles})"
        names.append(name)
    return names


def _rate(contender: Contender) -> float:
    return contender.success.mean if contender.success is not None else -1.0
