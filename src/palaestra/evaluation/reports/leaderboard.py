"""Leaderboards: candidates (an agent with a model) side by side, from any number of eval runs.

Parts of one evaluation in several runs (shards, seeds, single models) are joined by their cells:
episodes of the same candidate, environment and terms belong together, and joined shards score
exactly as one run would have. Parts that are not comparable are left out, with the reason. A
candidate without results on some environments or episodes is shown, but not ranked. Games between
players, who have a return each, are listed by player and rank nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestra.core.errors import InputError
from palaestra.evaluation.reports.cell_samples import Part, Sample
from palaestra.evaluation.running.evaluation_plan import CONTEXT, Cell
from palaestra.evaluation.running.suite import METRICS, Suite, differences
from palaestra.evaluation.statistics import overall
from palaestra.evaluation.statistics.intervals import Interval
from palaestra.evaluation.statistics.player_results import PlayerScore, has_success, player_scores

SHARED_TERMS = ("split", "turns", "seconds", "tokens", "total_tokens", "tried")
"""Terms in which all candidates must agree on an environment; the others are a candidate's own."""

COSTS = ("tokens", "seconds", "turns", "money")
REFERENCE = "expert"
OF_SOME = ("progress",)  # the mean is over the environments that declare it


@dataclass(frozen=True, slots=True)
class Standing:
    """One candidate on one environment; means over scored episodes, with equal task weights."""

    environment: str
    by_task: dict[int, float]  # success of each task with a score, over seeds and repeats
    costs: dict[str, dict[int, float]]  # the known ones of COSTS, by task
    means: dict[str, float]  # of the available metrics besides success
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
class Candidate:
    """An agent with a model and its settings."""

    name: str
    agent: str
    model: str
    standings: dict[str, Standing]  # by environment
    success: Interval | None  # over its environments; None without any score
    means: dict[str, float]  # over its environments, by metric
    weights: dict[str, float]  # by environment
    missing: tuple[str, ...]  # why it is not ranked

    @property
    def ranked(self) -> bool:
        return not self.missing

    @property
    def reference(self) -> bool:
        """Whether it is the environments' own oracle: an upper bound, not a choice."""
        return self.model == REFERENCE

    @property
    def scores(self) -> dict[str, dict[int, float]]:
        return {id: standing.by_task for id, standing in self.standings.items()}


@dataclass(frozen=True, slots=True)
class GameStanding:
    """One candidate in one game between players."""

    name: str  # of the candidate
    environment: str
    players: dict[str, PlayerScore]
    episodes: int
    planned: int


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The candidates, best first; unranked ones come last."""

    suite: Suite | None
    weights: dict[str, float]  # by environment
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()  # parts left out or joined, and why
    metrics: tuple[str, ...] = ("success", "progress", "turns", "tokens", "seconds", "money")
    games: tuple[GameStanding, ...] = ()

    @property
    def ranked(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.ranked]

    def front(self, cost: str) -> list[Candidate]:
        """Return the Pareto front of success and cost among ranked candidates, cheapest first.

        The environments' own oracles are left out.

        Raises:
            InputError: there is no such cost, or it is unknown for a candidate.
        """
        if cost not in COSTS:
            raise InputError(f"There is no cost '{cost}'; choose from {', '.join(COSTS)}.")
        choices = [candidate for candidate in self.ranked if not candidate.reference]
        lacking = [c.name for c in choices if cost not in c.means]
        if lacking:
            raise InputError(
                f"The {cost} of {lacking[0]} are unknown; choose another cost"
                f"{', or evaluate it with --price' if cost == 'money' else ''}."
            )
        found: list[Candidate] = []
        for one in sorted(choices, key=lambda c: (c.means[cost], -_rate(c))):
            if not found or _rate(one) > _rate(found[-1]):
                found.append(one)
        return found


def build(parts: Sequence[Part], suite: Suite | None = None) -> Leaderboard:
    """Build the leaderboard of these parts.

    Args:
        parts: see `cell_samples.read`; of any number of runs, in any order.
        suite: the environments and weights; None: the parts' common suite, else every
            environment that they have, with the first part's terms.

    Raises:
        InputError: nothing is left to compare.
    """
    ordered = sorted(parts, key=lambda part: (part.created, part.cell.phase))
    notes: list[str] = []
    if suite is None:
        suite = _agreed(ordered, notes)
    comparable = _comparable(ordered, suite, notes)
    if not comparable:
        reasons = f" ({notes[0]})" if notes else ""
        raise InputError(f"The runs hold nothing to compare{reasons}; name other runs.")
    games = {part.cell.environment for part in comparable if _is_game(part)}
    weights = {part.cell.environment: part.cell.weight for part in reversed(comparable)}
    if suite is not None:
        weights = {entry.environment: entry.weight for entry in suite.entries}
    weights = {id: weight for id, weight in sorted(weights.items()) if id not in games}

    grouped: dict[tuple[Any, ...], list[Part]] = {}
    for part in comparable:
        grouped.setdefault(_candidate_key(part.cell), []).append(part)
    names = _names([of[0].cell for of in grouped.values()])
    named = list(zip(names, grouped.values(), strict=True))
    played = [_game(name, of, id, notes) for id in sorted(games) for name, of in named]
    candidates = [_candidate(name, of, weights, notes) for name, of in named if weights]
    candidates.sort(key=lambda c: (not c.ranked, -_rate(c), c.name))
    versions = sorted({part.version for part in comparable})
    if len(versions) > 1:
        notes.append(f"the runs are of several versions of palaestra: {', '.join(versions)}")
    board = Leaderboard(
        suite,
        weights,
        tuple(candidates),
        tuple(dict.fromkeys(notes)),
        games=tuple(one for one in played if one is not None),
    )
    return board if suite is None else replace(board, metrics=suite.metrics)


def _agreed(parts: Sequence[Part], notes: list[str]) -> Suite | None:
    """Return the suite of all parts; None if they have none, or several."""
    suites = {part.suite.hash: part.suite for part in parts if part.suite is not None}
    if len(suites) == 1 and all(part.suite is not None for part in parts):
        return next(iter(suites.values()))
    of = list(suites.values())
    for other in of[1:]:
        why = "; ".join(differences(of[0], other)[:3])
        notes.append(
            f"{of[0].title} and {other.title} are not comparable as wholes: {why}; environments "
            "with equal terms are compared one by one"
        )
    return None


def _comparable(parts: Sequence[Part], suite: Suite | None, notes: list[str]) -> list[Part]:
    """Return the parts that agree with the suite, or with the first part on their environment."""
    entries = {entry.environment: entry for entry in suite.entries} if suite else {}
    first: dict[str, Cell] = {}
    judged: dict[str, str | None] = {}  # the version of each environment
    comparable: list[Part] = []
    for part in parts:
        cell = part.cell
        where = f"left out: {cell.agent} with {cell.model} on {cell.environment}"
        differing: list[str] = []
        if suite is not None:
            entry = entries.get(cell.environment)
            if entry is None:
                notes.append(f"{where}: the suite {suite.title} does not have that environment")
                continue
            limits = suite.limits
            wanted = {"split": entry.split, **limits.model_dump()}
            differing = [
                f"{name} {has} against {value}"
                for name, value in wanted.items()
                if (has := getattr(cell, name)) != value
            ]
            if entry.turns not in (None, cell.turns):
                differing.append(f"turns {cell.turns} against {entry.turns}")
            if not set(cell.tasks) <= set(entry.numbers):
                differing.append(f"{len(cell.tasks)} other tasks against {len(entry.numbers)}")
        standard = first.setdefault(cell.environment, cell) if not differing else cell
        for name in SHARED_TERMS:
            one, other = getattr(cell, name), getattr(standard, name)
            if one != other:
                differing.append(f"{name} {one} against {other}")
        known = judged.setdefault(cell.environment, part.judged_by) if not differing else None
        if None not in (known, part.judged_by) and known != part.judged_by:
            differing.append(f"judged by version {part.judged_by} against {known}")
        if set(cell.tasks) != set(standard.tasks):
            differing.append(f"{len(cell.tasks)} tasks against {len(standard.tasks)} other ones")
        if differing:
            notes.append(f"{where}: {', '.join(dict.fromkeys(differing))}")
        else:
            comparable.append(part)
    return comparable


def _candidate(
    name: str, parts: Sequence[Part], weights: Mapping[str, float], notes: list[str]
) -> Candidate:
    standings = {}
    for id in weights:
        of = [part for part in parts if part.cell.environment == id]
        if of:
            standings[id] = _standing(id, of, name, notes)
    missing = [f"no result on {id}" for id in weights if id not in standings]
    for id, found in standings.items():
        if not found.complete:
            missing.append(f"{found.episodes} of {found.planned} episodes on {id}")
    scored = {id: s for id, s in standings.items() if s.success is not None}
    shares = [weights[id] for id in scored]
    means = {}
    for metric in METRICS:
        known = [id for id, s in scored.items() if metric in s.means]
        if known and (metric in OF_SOME or len(known) == len(scored)):
            whole = sum(weights[id] for id in known)
            means[metric] = sum(weights[id] * scored[id].means[metric] for id in known) / whole
    rates = [s.success for s in scored.values() if s.success is not None]
    cell = parts[0].cell
    success = overall.combined(rates, shares) if rates else None
    return Candidate(
        name, cell.agent, cell.model, standings, success, means, dict(weights), tuple(missing)
    )


def _is_game(part: Part) -> bool:
    players = {player: None for sample in part.samples for player in sample.players}
    return not has_success(part.cell.environment, players)


def _game(
    name: str, parts: Sequence[Part], environment: str, notes: list[str]
) -> GameStanding | None:
    """Return the results of each player in one candidate's games; None without any."""
    own = [part for part in parts if part.cell.environment == environment]
    if not own:
        return None
    standing, samples = _standing(environment, own, name, notes), _samples(own)[0]
    played = [(sample.task, sample.players) for sample in samples if sample.scored]
    players = player_scores(played)
    return GameStanding(name, environment, players, standing.episodes, standing.planned)


def _samples(parts: Sequence[Part]) -> tuple[list[Sample], int]:
    """Return the samples of one candidate on one environment, and how many newer ones replaced."""
    found: dict[tuple[int, int, int], Sample] = {}
    duplicates = 0
    for part in parts:  # oldest first
        for sample in part.samples:
            key = (sample.task, sample.seed, sample.member)
            duplicates += key in found
            found[key] = sample
    return [found[key] for key in sorted(found)], duplicates  # the same for any split into runs


def _standing(environment: str, parts: Sequence[Part], name: str, notes: list[str]) -> Standing:
    """Summarise one candidate's episodes on one environment; of duplicates the newest counts."""
    samples, duplicates = _samples(parts)
    if duplicates:
        notes.append(
            f"{name} on {environment}: {duplicates} episodes are in two runs; the newer ones count"
        )
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
        environment,
        _by_task(scored, "solved"),
        {cost: tasks[cost] for cost in COSTS if cost in tasks},
        known,
        episodes=len(ended),
        planned=len(planned),
        faults=len(samples) - len(scored),
    )


def _by_task(samples: Sequence[Sample], metric: str) -> dict[int, float]:
    """Return means over seeds and repeats; empty if an episode lacks the metric."""
    if any(getattr(sample, metric) is None for sample in samples):
        return {}
    values: dict[int, list[float]] = {}
    for sample in samples:
        values.setdefault(sample.task, []).append(getattr(sample, metric))
    return {task: sum(of) / len(of) for task, of in sorted(values.items())}


def _candidate_key(cell: Cell) -> tuple[Any, ...]:
    roles = tuple(sorted(cell.roles.items()))
    limits = (cell.max_tokens, cell.reasoning_tokens, cell.context, cell.keep_thoughts)
    return (cell.agent, cell.model, roles, cell.temperature, *limits)


def _names(cells: Sequence[Cell]) -> list[str]:
    """Return a short name for each cell, with its settings if agent and model are not unique."""
    short = [f"{cell.agent}, {cell.model}" for cell in cells]
    counts = Counter(short)
    names = []
    for cell, name in zip(cells, short, strict=True):
        if counts[name] > 1:
            roles = "".join(f", {role}={model}" for role, model in sorted(cell.roles.items()))
            limit = "" if cell.max_tokens is None else f", {cell.max_tokens} tokens a reply"
            if cell.reasoning_tokens is not None:
                limit += f", {cell.reasoning_tokens} of reasoning"
            if cell.context != CONTEXT:
                limit += f", context {cell.context}"
            limit += ", thoughts kept" * cell.keep_thoughts
            name += f" (temperature {cell.temperature:g}{limit}{roles})"
        names.append(name)
    return names


def _rate(candidate: Candidate) -> float:
    return candidate.success.mean if candidate.success is not None else -1.0
