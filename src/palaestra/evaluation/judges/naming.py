"""Judges by name, as a command line gives them.

    seen:PATTERN, said:PATTERN, called:TOOL, shown:PATTERN      a rule (see `rules.py`)
    state:MODULE:FUNCTION                                       a check of the world's last state
    label:NAME                                                  what persons said of the episodes
    anything else                                               a model with a rubric

With probes (fixed ones, or planned by a model) any of them judges actively (see `active.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.evaluation.attribution.replay import Worlds
from palaestra.evaluation.judges.active import ActiveJudge, FixedProbes, PlannedProbes, Prober
from palaestra.evaluation.judges.model_judge import ModelJudge
from palaestra.evaluation.judges.rubric import SOLVED, read_rubric
from palaestra.evaluation.judges.rules import KINDS, LabelJudge, RuleJudge, StateJudge, state_check
from palaestra.evaluation.judges.verdict import Judge

UNREADING = ("expert", "random")  # models that know worlds, and read nothing


@dataclass(frozen=True, slots=True)
class Wanted:
    """A judge as somebody asks for it."""

    name: str
    rubric: Path | None = None
    probes: Sequence[str] = ()
    prober: str | None = None  # the model that plans probes
    tokens: int = 96  # of a model's reply


def make_judge(
    wanted: Wanted,
    worlds: Worlds,
    load: Callable[[str], Model],
    labels: Mapping[Key, Mapping[str, str]] = {},
) -> tuple[Judge, list[Model]]:
    """The judge, and the models that it holds (to be closed).

    Args:
        wanted: which one.
        worlds: makes worlds, for judges that look at them.
        load: makes models.
        labels: those that persons gave to episodes.

    Raises:
        InputError: there is no such judge, or its parts do not fit.
    """
    kind, _, rest = wanted.name.partition(":")
    held: list[Model] = []
    inner: Judge
    if kind in KINDS and rest:
        inner = RuleJudge(kind, rest)
    elif kind == "label" and rest:
        inner = LabelJudge(rest, labels)
    elif kind == "state" and rest:
        inner = StateJudge(wanted.name, state_check(rest), worlds)
    else:
        held.append(load(_reading(wanted.name)))
        rubric, name = SOLVED, f"model:{held[0].name}"
        if wanted.rubric:
            rubric, name = read_rubric(wanted.rubric), f"{name}@{wanted.rubric.stem}"
        inner = ModelJudge(held[0], rubric, name=name, tokens=wanted.tokens)
    if wanted.rubric and not held:
        raise InputError(f"--rubric is for models, and '{wanted.name}' is a rule; leave it out.")
    prober: Prober | None = None
    if wanted.prober:
        planner = next((m for m in held if wanted.prober == wanted.name), None)
        if planner is None:
            planner = load(_reading(wanted.prober))
            held.append(planner)
        prober = PlannedProbes(planner)
    elif wanted.probes:
        prober = FixedProbes(wanted.probes)
    if kind == "shown" and prober is None:
        raise InputError(
            f"'{wanted.name}' looks at what probes show, and there are none; give --probe ACTION."
        )
    return (inner if prober is None else ActiveJudge(inner, prober, worlds)), held


def _reading(name: str) -> str:
    name = name.removeprefix("model:")
    if name in UNREADING:
        raise InputError(f"'{name}' acts in worlds and reads nothing, so it cannot judge.")
    return name
