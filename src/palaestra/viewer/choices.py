"""What can be compared: the newest runs with the phases that evaluate."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException

from palaestra.viewer.sides import evaluated
from palaestra.viewer.site import Site

NEWEST = 30  # runs that are offered
PHASES = 12  # of each


@dataclass(frozen=True, slots=True)
class Choice:
    """One run."""

    run: str
    phases: tuple[str, ...]


def choices(site: Site) -> tuple[Choice, ...]:
    """The newest runs that can be read and have episodes."""
    found = []
    for record in site.records()[:NEWEST]:
        try:
            with site.run(record.name) as opened:
                phases = evaluated(opened.database.phases())
        except HTTPException:  # of another format, or gone
            continue
        if phases:
            found.append(Choice(record.name, tuple(phases[-PHASES:])))
    return tuple(found)
