"""Written procedures, as graphs of steps, and the paths that cover them.

A procedure is a text of numbered steps. A step asks the user for something, calls a tool with what
was asked for, or says something and ends; after a call, its outcome may decide how it goes on:

    An order is returned
    1. Ask for the order number.
    2. Call find_order(order number).
       delivered: go to 3
       lost: go to 5
    3. Ask for the reason.
    4. Call book_return(order number, reason).
    5. Say "This is settled." End.

After ALMITA (Arcadinho et al. 2024): procedure, flow graph, sampled paths, conversations with
stubs. Ours: the form is read without a model, and the paths cover every edge.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from palaestra.core.errors import InputError

STEP = re.compile(r"(\d+)\.\s+(.*)")
ASK = re.compile(r"Ask for the ([a-z][a-z ]*)\.")
CALL = re.compile(r"Call ([a-z][a-z0-9_]*)\(([a-z ]*(?:, [a-z ]+)*)\)\.")
SAY = re.compile(r'Say "([^"]+)" End\.')
OUTCOME = re.compile(r"([a-z][a-z ]*): go to (\d+)")
DONE = "done"  # the outcome of a call without named ones


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the graph; one of `asks`, `calls` and `says` is set."""

    line: int
    asks: str = ""  # a slot
    calls: str = ""  # a tool
    slots: tuple[str, ...] = ()  # the arguments of the call
    says: str = ""  # at the end


@dataclass(frozen=True, slots=True)
class Procedure:
    """A graph of steps, which begins with the first one."""

    title: str
    text: str
    steps: Mapping[int, Step]
    edges: Mapping[int, Mapping[str, int]]  # from each step, by outcome; only calls have outcomes


Path = tuple[tuple[int, str], ...]
"""Steps from the first to an end, each with the outcome of its call, or nothing."""


def parse_procedure(text: str, source: str) -> Procedure:
    """Return the graph of a written procedure.

    Raises:
        InputError: a line is none of the forms, or leads to a step that is missing, uses what was
            not asked for, or can never be reached or left; the line is named.
    """
    listed = text.strip().splitlines()
    steps: dict[int, Step] = {}
    outcomes: dict[int, dict[str, int]] = {}
    last = 0
    for number, line in enumerate(listed[1:], 2):
        if not line.strip():
            continue
        if found := STEP.fullmatch(line.strip()):
            last = int(found[1])
            if last in steps:
                raise InputError(f"{source}, line {number}: step {last} is there twice; rename it.")
            steps[last], outcomes[last] = _step(found[2], number, source), {}
        elif (way := OUTCOME.fullmatch(line.strip())) and steps and steps[last].calls:
            outcomes[last][way[1]] = int(way[2])
        else:
            raise InputError(
                f'{source}, line {number}: write "1. Ask for the ….", "1. Call tool(…).", '
                '"1. Say \\"…\\" End.", or after a call "outcome: go to 1".'
            )
    if not steps:
        raise InputError(f"{source} has no steps; write a title, and then steps such as 1. Ask ….")
    order = list(steps)
    edges: dict[int, dict[str, int]] = {}
    for at, (name, step) in enumerate(steps.items()):
        following = {} if step.says else {DONE if step.calls else "": order[(at + 1) % len(order)]}
        edges[name] = outcomes[name] or following
        for target in edges[name].values():
            if target not in steps or (not outcomes[name] and at + 1 == len(order)):
                raise InputError(
                    f"{source}, line {step.line}: it goes on with a step that is not there; add "
                    'it, or end with Say "…" End.'
                )
    procedure = Procedure(listed[0].strip(), text.strip(), steps, edges)
    _check(procedure, source)
    return procedure


def covering_paths(procedure: Procedure) -> list[Path]:
    """Return paths that together follow every edge, each the shortest one for a new edge."""
    first = next(iter(procedure.steps))
    uncovered = {(step, out) for step, ways in procedure.edges.items() for out in ways}
    if not uncovered:
        return [((first, ""),)]
    found: list[Path] = []
    while uncovered:
        step, outcome = min(uncovered)
        before = _way(procedure, first, {step})
        after = _way(procedure, procedure.edges[step][outcome], _ends(procedure))
        assert before is not None
        assert after is not None
        path = (*before[:-1], (step, outcome), *after)
        uncovered -= set(path)
        found.append(path)
    return found


def _step(text: str, line: int, source: str) -> Step:
    if ask := ASK.fullmatch(text):
        return Step(line, asks=ask[1])
    if call := CALL.fullmatch(text):
        slots = tuple(slot.strip() for slot in call[2].split(",") if slot.strip())
        return Step(line, calls=call[1], slots=slots)
    if say := SAY.fullmatch(text):
        return Step(line, says=say[1])
    raise InputError(
        f"{source}, line {line}: '{text}' is no step; write Ask for the …., Call tool(…). or "
        'Say "…" End.'
    )


def _ends(procedure: Procedure) -> set[int]:
    return {number for number, step in procedure.steps.items() if step.says}


def _way(procedure: Procedure, start: int, ends: set[int]) -> Path | None:
    """Return the shortest path to one of some steps; None if there is none."""
    waiting: deque[tuple[int, Path]] = deque([(start, ())])
    seen = {start}
    while waiting:
        at, path = waiting.popleft()
        if at in ends:
            return (*path, (at, ""))
        for outcome, target in procedure.edges[at].items():
            if target not in seen:
                seen.add(target)
                waiting.append((target, (*path, (at, outcome))))
    return None


def _check(procedure: Procedure, source: str) -> None:
    """Raise InputError for a step that is not reached or left, or a slot nobody asked for."""
    first = next(iter(procedure.steps))
    for number, step in procedure.steps.items():
        if _way(procedure, first, {number}) is None:
            raise InputError(f"{source}, line {step.line}: no step leads here; lead one here.")
        if _way(procedure, number, _ends(procedure)) is None:
            raise InputError(f'{source}, line {step.line}: it never ends; end with Say "…" End.')
    for path in covering_paths(procedure):
        known: set[str] = set()
        for number, _ in path:
            step = procedure.steps[number]
            known |= {step.asks}
            if missing := [slot for slot in step.slots if slot not in known]:
                raise InputError(
                    f"{source}, line {step.line}: nobody has asked for the {missing[0]} on the way "
                    f"{' → '.join(str(one) for one, _ in path)}; ask for it before."
                )
