"""Alarms of a run, as they were raised: each monitor's first one, and for how long it stood.

They are kept with the run when they are raised, as its document `alarms/PHASE`. What a person
read at the terminal is therefore what the viewer, `palaestra show` and the report tell later, also
when thresholds have changed. A run that was made before has no such document: its alarms can be
found again from its metrics, by the monitors of today.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from palaestra.learning.monitors import Alarm, alarms

HEAD, TAIL = 10, 60  # steps that the monitors look at: the first, and the latest


@dataclass(frozen=True, slots=True)
class Raised:
    """An alarm, and for how long it stood."""

    first: Alarm
    last: int  # step
    steps: int


Standing = Mapping[str, Raised]  # by the monitor's name, in the order of their first steps


class Documents(Protocol):
    """What is needed of a run's database."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, document: Any) -> None: ...


def after(standing: Standing, fired: Sequence[Alarm]) -> Standing:
    """What stands once a step has raised `fired`; a step that is made again counts once."""
    found = dict(standing)
    for alarm in fired:
        known = found.get(alarm.name)
        if known is None:
            found[alarm.name] = Raised(alarm, alarm.step, 1)
        elif alarm.step > known.last:
            found[alarm.name] = replace(known, last=alarm.step, steps=known.steps + 1)
    return found


def keep(documents: Documents, phase: str, standing: Standing) -> None:
    """Store what stands, none included: a run without alarms is not one that looked for none."""
    documents.put(f"alarms/{phase}", [_as_json(raised) for raised in standing.values()])


def kept(documents: Documents, phase: str) -> Standing | None:
    """What was stored; None: the run was made before alarms were."""
    rows = documents.get(f"alarms/{phase}")
    return None if rows is None else {row["name"]: _from_json(row) for row in rows}


def found_again(metrics: Sequence[tuple[int, Mapping[str, float]]]) -> Standing:
    """The alarms that today's monitors raise on the steps of a run.

    Of a long run they are given the first HEAD and the latest TAIL steps, which is all that they
    look at.
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
