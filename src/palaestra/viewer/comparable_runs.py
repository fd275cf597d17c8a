"""Comparable runs: the newest runs with their evaluation phases."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException

from palaestra.viewer.comparison import evaluated, names_policy
from palaestra.viewer.facts import policy_name
from palaestra.viewer.site import Site

NEWEST = 30  # runs offered
PHASES = 12  # phases offered per run


@dataclass(frozen=True, slots=True)
class Choice:
    """One run with its evaluation phases."""

    run: str
    phases: tuple[str, ...]
    policy: str  # "AGENT with MODEL"; empty if the phases name them


def choices(site: Site) -> tuple[Choice, ...]:
    """Return the newest runs that can be read and have episodes."""
    found = []
    for record in site.records()[:NEWEST]:
        try:
            with site.run(record.name) as opened:
                phases = evaluated(opened.database.phases())
                named = any(map(names_policy, phases))
                policy = "" if named else policy_name(opened.database)
        except HTTPException:  # of another format, or deleted
            continue
        if phases:
            found.append(Choice(record.name, tuple(phases[-PHASES:]), policy))
    return tuple(found)
