"""A run as OpenMetrics text, from its folder: what Prometheus and its kin read with `--metrics`.

The record has all of it, so figures go on where they were when a run is resumed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from palaestra.evaluation.reports.learning_curves import curve_stage
from palaestra.evaluation.running.evaluation_plan import DOCUMENT, from_json
from palaestra.store.database import Database
from palaestra.store.process_roster import Roster
from palaestra.store.queries import Queries

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Samples = Iterable[tuple[Mapping[str, str], float]]


def page(database: Database) -> str:
    """Return the figures of a run."""
    lines = [line for family in _families(database) for line in _lines(*family)]
    return "\n".join([*lines, "# EOF", ""])


def _families(database: Database) -> Iterator[tuple[str, str, str, Samples]]:
    """Yield name, type, description and samples of each family."""
    found = Queries(database).counts()
    ended = [
        ({"status": status, "owner": owner}, count)
        for (status, owner), count in sorted(found.ended.items())
    ]
    yield "episodes", "counter", "Ended episodes, by outcome and by whose fault it was.", ended
    yield "episodes_begun", "gauge", "Episodes with events and without an end.", _one(found.begun)
    planned = database.get(DOCUMENT)
    if planned is not None:
        waiting = from_json(planned, database.path).episodes - sum(found.ended.values())
        text = "Episodes of the plan that are neither begun nor ended."
        yield "episodes_waiting", "gauge", text, _one(max(0, waiting - found.begun))
    yield "turns", "counter", "Turns of all episodes.", _one(found.turns)
    tokens = ({"kind": "prompt"}, found.prompt_tokens), ({"kind": "sampled"}, found.sampled_tokens)
    yield "tokens", "counter", "Tokens of ended episodes; of prompts, those not cached.", tokens
    yield from _time(database)
    stage = curve_stage(database.metric_phases(), database.metrics)
    yield from _learning(database.metrics(stage))
    roster = Roster.read(database)
    if roster is not None:
        yield from _processes(roster)


def _time(database: Database) -> Iterator[tuple[str, str, str, Samples]]:
    totals: Any = database.get("totals") or {}
    stages: Any = database.get("stages") or []
    phases = {stage["name"]: stage["seconds"] for stage in stages} | (totals.get("cells") or {})
    samples = [({"phase": name}, seconds) for name, seconds in phases.items()]
    yield "phase_seconds", "counter", "Seconds of each phase that has ended.", samples


def _learning(rows: list[tuple[int, dict[str, float]]]) -> Iterator[tuple[str, str, str, Samples]]:
    if not rows:
        return
    yield "rl_steps", "counter", "Steps of reinforcement learning.", _one(len(rows))
    parts = {"rollout": "rollout_seconds", "learning": "learn_seconds", "all": "seconds"}
    seconds = [
        ({"part": part}, math.fsum(row.get(name, 0.0) for _, row in rows))
        for part, name in parts.items()
    ]
    yield "rl_seconds", "counter", "Seconds of the steps of reinforcement learning.", seconds
    latest = [({"figure": name}, value) for name, value in rows[-1][1].items()]
    yield "rl_latest", "gauge", "Figures of the latest step, such as reward and queue.", latest


def _processes(roster: Roster) -> Iterator[tuple[str, str, str, Samples]]:
    present = roster.present
    up = Counter((entry.kind, entry.machine) for entry in present)
    counts = [({"kind": kind, "machine": m}, n) for (kind, m), n in sorted(up.items())]
    yield "processes", "gauge", "Processes of a cluster that are up.", counts
    loads = [
        ({"kind": entry.kind, "number": str(entry.number), "machine": entry.machine}, entry.load)
        for entry in present
    ]
    yield (
        "process_load",
        "gauge",
        "Sessions of workers, calls of engines, batches of copies.",
        loads,
    )
    text = "Processes of a cluster that died without being asked to leave."
    yield "process_deaths", "counter", text, _one(roster.deaths)
    refused = "Messages of workers that were refused, because their leases were over."
    yield "refused_messages", "counter", refused, _one(roster.refused)


def _one(value: float) -> Samples:
    return [({}, value)]


def _lines(name: str, kind: str, text: str, samples: Samples) -> Iterator[str]:
    full = f"palaestra_{name}"
    yield f"# TYPE {full} {kind}"
    yield f"# HELP {full} {text}"
    suffix = "_total" if kind == "counter" else ""
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(one)}"' for label, one in labels.items())
        yield (
            f"{full}{suffix}{{{inside}}} {_number(value)}"
            if inside
            else (f"{full}{suffix} {_number(value)}")
        )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
