"""Examining an environment: every clause, and the smallest trace that breaks one."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from palaestra.core.environment import Environment
from palaestra.core.errors import InputError
from palaestra.environments.conformance import CLAUSES
from palaestra.environments.conformance_deep import DEEP
from palaestra.environments.examination import Happening, Subject

LENGTHS = (1, 2, 3, 5, 8, 13)  # of walks by which a failing one is made smaller


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one clause."""

    clause: str  # in words
    demands: str  # the clause's own first line
    broken: str  # how it is broken; empty where it holds
    trace: tuple[Happening, ...]  # what happened before, of the smallest case found
    seconds: float

    @property
    def holds(self) -> bool:
        return not self.broken


def examine(id: str, deep: bool = False) -> Iterator[Finding]:
    """Hold the environment of that id to each clause, one after the other.

    Raises:
        InputError: there is no such environment, or what it needs is not installed.
    """
    subject = Subject.of(id)
    for clause in (*CLAUSES, *(DEEP if deep else ())):
        yield hold(subject, clause)


def hold(subject: Subject, clause: Callable[[Subject], None]) -> Finding:
    """Try one clause; where it is broken, look for a shorter walk that breaks it as well."""
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
    """How the clause is broken, in words; closes every world that was made."""
    made: list[Environment] = []
    make = subject.make

    def kept() -> Environment:
        made.append(make())
        return made[-1]

    watched = replace(subject, make=kept)
    try:
        clause(watched)
    except AssertionError as error:
        return str(error) or "an assertion failed"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        return f"raised {kind}{error}{place}"
    finally:
        for world in made:
            try:
                world.close()
            except Exception as error:
                return f"close raised {type(error).__name__}: {error}"
    return ""
