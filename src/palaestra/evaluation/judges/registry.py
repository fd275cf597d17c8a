"""Judges by name, as on the command line.

    seen:PATTERN, said:PATTERN, called:TOOL, shown:PATTERN      a rule (see `rule_judges.py`)
    state:MODULE:FUNCTION                                       a check of the last state
    label:NAME                                                  labels that people gave
    trajectory:FILE                                             see `trajectory_judge.py`
    erring:P                                                    see `erring_judge.py`
    anything else                                               a model with a rubric

With probes (fixed, or planned by a model) each of them becomes an active judge (`active_judge.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory
from palaestra.evaluation.judges.active_judge import ActiveJudge, FixedProbes, PlannedProbes, Prober
from palaestra.evaluation.judges.erring_judge import ErringJudge
from palaestra.evaluation.judges.model_judge import ModelJudge
from palaestra.evaluation.judges.rubric import SOLVED, read_rubric, rubric_of
from palaestra.evaluation.judges.rule_judges import (
    KINDS,
    LabelJudge,
    RuleJudge,
    StateJudge,
    state_check,
)
from palaestra.evaluation.judges.trajectory_judge import TrajectoryJudge
from palaestra.evaluation.judges.verdict import Judge

CONTEXT = 4096  # tokens of a question to a model in this process
UNREADING = ("expert", "random")  # models that act without reading text


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """The options that select a judge."""

    name: str
    rubric: Path | Mapping[str, Any] | None = None  # a TOML file, or its table `rubric`
    probes: Sequence[str] = ()
    prober: str | None = None  # the model that plans probes
    tokens: int = 96  # of a model's reply


def make_judge(
    wanted: JudgeRequest,
    make_env: EnvironmentFactory,
    load: Callable[[str], Model],
    labels: Mapping[Key, Mapping[str, str]] = {},
) -> tuple[Judge, list[Model]]:
    """Create the judge, and return it with its models, which the caller closes.

    Args:
        wanted: the options.
        make_env: creates environments, for judges that need one.
        load: loads models.
        labels: the labels that people gave to episodes.

    Raises:
        InputError: there is no such judge, or its options do not fit together.
    """
    kind, _, rest = wanted.name.partition(":")
    held: list[Model] = []
    inner: Judge
    if kind in KINDS and rest:
        inner = RuleJudge(kind, rest)
    elif kind == "label" and rest:
        inner = LabelJudge(rest, labels)
    elif kind == "trajectory" and rest:
        inner = TrajectoryJudge(Path(rest))
    elif kind == "erring" and rest:
        inner = ErringJudge(rest)
    elif kind == "state" and rest:
        inner = StateJudge(wanted.name, state_check(rest), make_env)
    else:
        held.append(load(_language_model(wanted.name)))
        rubric, name = SOLVED, f"model:{held[0].name}"
        if isinstance(wanted.rubric, Path):
            rubric, name = read_rubric(wanted.rubric), f"{name}@{wanted.rubric.stem}"
        elif wanted.rubric is not None:
            rubric, name = rubric_of(wanted.rubric), f"{name}@rubric"
        inner = ModelJudge(held[0], rubric, name=name, tokens=wanted.tokens)
    if wanted.rubric and not held:
        raise InputError(f"'{wanted.name}' is a rule, and a rubric needs a model; omit --rubric.")
    prober: Prober | None = None
    if wanted.prober:
        planner = next((m for m in held if wanted.prober == wanted.name), None)
        if planner is None:
            planner = load(_language_model(wanted.prober))
            held.append(planner)
        prober = PlannedProbes(planner)
    elif wanted.probes:
        prober = FixedProbes(wanted.probes)
    if kind == "shown" and prober is None:
        raise InputError(
            f"'{wanted.name}' reads the output of probes, and there are none; give --probe ACTION."
        )
    return (inner if prober is None else ActiveJudge(inner, prober, make_env)), held


def load_to_judge(name: str, progress: Callable[[str], None]) -> Model:
    """Load a model that judges; `progress` receives one sentence whenever it takes time."""
    from palaestra.agents.direct import DirectAgent
    from palaestra.models.registry import load_model

    return load_model(name, DirectAgent(), slots=2, context=CONTEXT, progress=progress)


def _language_model(name: str) -> str:
    name = name.removeprefix("model:")
    if name in UNREADING:
        raise InputError(f"'{name}' reads no text, so it cannot judge; choose a language model.")
    return name
