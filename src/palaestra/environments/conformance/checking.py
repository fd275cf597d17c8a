"""Checking an environment: every clause, and the smallest trace that breaks one."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from palaestra.core.environment import Environment
from palaestra.core.errors import InputError
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.deep_clauses import DEEP
from palaestra.environments.conformance.subject import Subject, TraceEvent

LENGTHS = (1, 2, 3, 5, 8, 13)  # of the walks tried to shrink a failing one


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking one clause."""

    clause: str  # its name, with spaces
    demands: str  # the first line of the clause's docstring
    broken: str  # how it is broken; empty if it holds
    trace: tuple[TraceEvent, ...]  # the events before the failure, of the smallest case found
    seconds: float

    @property
    def holds(self) -> bool:
        return not self.broken


def check_environment(id: str, deep: bool = False) -> Iterator[Finding]:
    """Check the environment of that id against each clause, one after the other.

    Raises:
        InputError: there is no such environment, or what it needs is not installed.
    """
    subject = Subject.of(id)
    for clause in (*CLAUSES, *(DEEP if deep else ())):
        yield check_clause(subject, clause)


def check_clause(subject: Subject, clause: Callable[[Subject], None]) -> Finding:
    """Check one clause; if it is broken, search for a shorter walk that also breaks it."""
    began = time.monotonic()
    subject = replace(subject, trace=[])
    broken, smallest = _broken(subject, clause), subject.trace
    if broken and clause in CLAUSES:
        for steps in (n for n in LENGTHS if n < subject.steps):
            smaller = replace(subject, steps=steps, per_split=1, trace=[])
            found = _broken(smaller, clause)
            if found:
                broken, smallest = found, smaller.trace
                break
    return Finding(
        clause=clause.__name__.replace("_", " "),
        demands=(clause.__doc__ or "").strip().partition("\n")[0],
        broken=broken,
        trace=tuple(smallest) if broken else (),
        seconds=time.monotonic() - began,
    )


def _broken(subject: Subject, clause: Callable[[Subject], None]) -> str:
    """Return how the clause is broken, "" if it holds; close every environment that was made."""
    made: list[Environment] = []
    make = subject.make

    def recorded_make() -> Environment:
        made.append(make())
        return made[-1]

    watched = replace(subject, make=recorded_make)
    try:
        clause(watched)
    except AssertionError as error:
        return str(error) or "an assertion failed"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        return f"raised {kind}{error}{location}"
    finally:
        for env in made:
            try:
                env.close()
            except Exception as error:
                return f"close raised {type(error).__name__}: {error}"
    return ""
