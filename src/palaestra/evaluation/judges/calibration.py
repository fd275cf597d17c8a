"""Calibration: a judge is measured against the recorded truth before its verdicts are used.

The truth is an episode's own outcome, or a person's label. Only scored episodes with a truth
count. The measurement is stored with the run and attached to every later verdict of a judge with
the same identity.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.evaluation.judges.agreement import Agreement, Judged, agreement
from palaestra.evaluation.judges.bias_probes import (
    Effect,
    length_effects,
    name_effect,
    order_effect,
    self_effect,
)
from palaestra.evaluation.judges.case import Case, case_of
from palaestra.evaluation.judges.verdict import Cost, Judge, Verdict

PROBES = ("order", "length", "name", "self")
MOST_PAIRS = 32  # of the order probe


Truth = Callable[[Episode], bool | None]


def solved(episode: Episode) -> bool | None:
    """Return the episode's own outcome: the truth without human labels."""
    return episode.outcome.solved


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured agreement, biases and cost of a judge."""

    judge: str
    identity: str
    phases: tuple[str, ...]  # on which it was measured
    agreement: Agreement
    effects: tuple[Effect, ...]
    cost: Cost  # of judging the cases once, without the probes

    def as_json(self) -> dict[str, Any]:
        """Return all fields as a JSON document."""
        return asdict(self)

    def short(self) -> dict[str, Any]:
        """Return the summary that is attached to every verdict."""
        found = self.agreement
        return {
            "cases": found.cases,
            "silent": found.silent,
            "accuracy": _bounds(found.accuracy),
            "kappa": _bounds(found.kappa),
            "effects": {e.probe: _bounds(e.effect) for e in self.effects},
            "phases": list(self.phases),
        }


async def calibrate(
    judge: Judge,
    episodes: Sequence[Episode],
    *,
    model: str = "",
    probes: Sequence[str] = PROBES,
    truth: Truth = solved,
    seed: int = 0,
) -> tuple[Calibration, list[Verdict]]:
    """Judge episodes whose outcome is known, and probe the judge for biases.

    Args:
        judge: the judge to measure.
        episodes: unscored episodes are skipped.
        model: the model behind the judge; empty if there is none.
        probes: of PROBES.
        truth: whether an episode is truly solved; None if unknown.
        seed: of the choice of pairs and of the resampling.

    Returns:
        the calibration, and the verdicts on the episodes with a truth, in their order.

    Raises:
        UnknownName: a probe is not one of PROBES.
        InputError: no episode has a truth.
    """
    for probe in probes:
        if probe not in PROBES:
            raise UnknownName("probe of judges", probe, PROBES)
    scored = [e for e in episodes if e.outcome.scored and truth(e) is not None]
    if not scored:
        raise InputError(
            "No episode has a valid result to compare a judge with; evaluate or label some first."
        )
    cases = [case_of(episode) for episode in scored]
    verdicts = await judge.judge_all(cases)
    judged = [
        Judged(case.episode.key.group, verdict.solved, bool(truth(case.episode)))
        for case, verdict in zip(cases, verdicts, strict=True)
    ]
    effects: list[Effect] = []
    if "order" in probes:
        effects.append(await order_effect(judge, pairs(cases, seed)))
    if "length" in probes:
        effects += await length_effects(judge, cases, verdicts)
    if "name" in probes and model:
        effects.append(await name_effect(judge, model, cases))
    if "self" in probes and model:
        effects.append(self_effect(model, cases, verdicts))
    cost = sum((verdict.cost for verdict in verdicts), Cost())
    phases = tuple(dict.fromkeys(episode.key.phase for episode in scored))
    found = agreement(judged, seed=seed)
    return Calibration(judge.name, judge.identity, phases, found, tuple(effects), cost), verdicts


def pairs(cases: Sequence[Case], seed: int = 0) -> list[tuple[Case, Case]]:
    """Pair solved with unsolved cases, of the same task if possible."""
    rng = random.Random(seed)
    solved = [case for case in cases if case.episode.outcome.solved]
    unsolved = [case for case in cases if not case.episode.outcome.solved]
    rng.shuffle(solved)
    rng.shuffle(unsolved)
    found: list[tuple[Case, Case]] = []
    for case in solved[:MOST_PAIRS]:
        if not unsolved:
            break
        same = (o for o in unsolved if o.episode.task.id == case.episode.task.id)
        other = next(same, unsolved[0])
        unsolved.remove(other)
        found.append((case, other) if rng.random() < 0.5 else (other, case))
    return found


def trusted(verdict: Verdict, known: Mapping[str, Any] | None) -> Verdict:
    """Attach the calibration of a judge with the same identity, if there is one."""
    if known is None or known.get("identity") != verdict.identity:
        return verdict
    return replace(verdict, calibration=known["short"])


def _bounds(interval: Any) -> list[float] | None:
    return None if interval is None else [interval.mean, interval.low, interval.high]
