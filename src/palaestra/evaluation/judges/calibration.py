"""Calibration: a judge is measured against the recorded truth before anybody relies on it.

The truth is the episodes' own outcome, or what persons said of them; only scored episodes count,
and of these only those with a truth. What is measured is stored
with the run and attached to every later verdict of a judge of the same identity.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.evaluation.judges.agreement import Agreement, Judged, agreement
from palaestra.evaluation.judges.bias import (
    Effect,
    length_effects,
    name_effect,
    order_effect,
    self_effect,
)
from palaestra.evaluation.judges.case import Case, case_of
from palaestra.evaluation.judges.verdict import Cost, Judge, Verdict

PROBES = ("order", "length", "name", "self")
MOST_PAIRS = 32  # of the probe of order


Truth = Callable[[Episode], bool | None]


def solved(episode: Episode) -> bool | None:
    """The truth where no person has spoken."""
    return episode.outcome.solved


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known of a judge."""

    judge: str
    identity: str
    phases: tuple[str, ...]  # on which it was measured
    agreement: Agreement
    effects: tuple[Effect, ...]
    cost: Cost  # of judging the cases once, without the probes

    def as_json(self) -> dict[str, Any]:
        """All of it, as a document holds it."""
        return asdict(self)

    def short(self) -> dict[str, Any]:
        """What every verdict carries."""
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
        judge: who is measured.
        episodes: those that are not scored are left out.
        model: the model behind the judge; empty where there is none.
        probes: of PROBES.
        truth: what is true of an episode; None where nobody knows.
        seed: of the choice of pairs and of resampling.

    Returns:
        what was found, and the verdicts on the episodes with a truth in their order.

    Raises:
        InputError: there is no truth.
    """
    scored = [e for e in episodes if e.outcome.scored and truth(e) is not None]
    if not scored:
        raise InputError("No episode here has a valid result, so there is no truth to agree with.")
    cases = [case_of(episode) for episode in scored]
    verdicts = [await judge.judge(case) for case in cases]
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
    """A solved and an unsolved case each, of the same task where there are such."""
    dice = random.Random(seed)
    solved = [case for case in cases if case.episode.outcome.solved]
    unsolved = [case for case in cases if not case.episode.outcome.solved]
    dice.shuffle(solved)
    dice.shuffle(unsolved)
    found: list[tuple[Case, Case]] = []
    for case in solved[:MOST_PAIRS]:
        if not unsolved:
            break
        same = (o for o in unsolved if o.episode.task.id == case.episode.task.id)
        other = next(same, unsolved[0])
        unsolved.remove(other)
        found.append((case, other) if dice.random() < 0.5 else (other, case))
    return found


def trusted(verdict: Verdict, known: Mapping[str, Any] | None) -> Verdict:
    """The verdict with what is known of its judge, where that is of the same identity."""
    if known is None or known.get("identity") != verdict.identity:
        return verdict
    return replace(verdict, calibration=known["short"])


def _bounds(interval: Any) -> list[float] | None:
    return None if interval is None else [interval.mean, interval.low, interval.high]
