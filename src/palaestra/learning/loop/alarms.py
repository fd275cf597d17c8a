"""Alarms of a run, as they were raised: each monitor's first one, and how long it lasted.

They are stored with the run when they are raised, as its document `alarms/PHASE`. The viewer,
`palaestra show` and the report therefore show the terminal's alarms later, even if thresholds have
changed. An older run has no such document: today's monitors can find its alarms again from its
metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from palaestra.learning.loop.monitors import Alarm, alarms

HEAD, TAIL = 10, 60  # steps that the monitors look at: the first, and the latest


@dataclass(frozen=True, slots=True)
class Raised:
    """An alarm, and how long it lasted."""

    first: Alarm
    last: int  # step
    steps: int


Standing = Mapping[str, Raised]  # by the monitor's name, in the order of their first steps


class Documents(Protocol):
    """The part of a run's database that alarms need."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, document: Any) -> None: ...


def after(standing: Standing, fired: Sequence[Alarm]) -> Standing:
    """Return all alarms once a step has raised `fired`; a step that is made again counts once."""
    found = dict(standing)
    for alarm in fired:
        known = found.get(alarm.name)
        if known is None:
            found[alarm.name] = Raised(alarm, alarm.step, 1)
        elif alarm.step > known.last:
            found[alarm.name] = replace(known, last=alarm.step, steps=known.steps + 1)
    return found


def store_alarms(documents: Documents, phase: str, standing: Standing) -> None:
    """Store the alarms, none included: a run without alarms is not one that looked for none."""
    documents.put(f"alarms/{phase}", [_as_json(raised) for raised in standing.values()])


def stored_alarms(documents: Documents, phase: str) -> Standing | None:
    """Return the stored alarms; None if the run was made before alarms were."""
    rows = documents.get(f"alarms/{phase}")
    return None if rows is None else {row["name"]: _from_json(row) for row in rows}


def found_again(metrics: Sequence[tuple[int, Mapping[str, float]]]) -> Standing:
    """Return the alarms that today's monitors raise on the steps of a run.

    For a long run they get the first HEAD and the latest TAIL steps, which is all that they
    read.
    """
    history = [{**values, "step": step} for step, values in metrics]
    standing: Standing = {}
    for end in range(1, len(history) + 1):
        seen = history[:end] if end <= HEAD + TAIL else history[:HEAD] + history[end - TAIL : end]
        standing = after(standing, alarms(seen))
    return standing


def _as_json(raised: Raised) -> dict[str, Any]:
    first = raised.first
    return {
        "name": first.name,
        "step": first.step,
        "value": first.value if math.isfinite(first.value) else None,
        "threshold": first.threshold,
        "message": first.message,
        "last": raised.last,
        "steps": raised.steps,
    }


def _from_json(row: Mapping[str, Any]) -> Raised:
    value = math.nan if row["value"] is None else row["value"]
    first = Alarm(row["name"], row["message"], row["step"], value, row["threshold"])
    return Raised(first, row["last"], row["steps"])
