"""The verdict of a task, derived from what its reference changes.

The reference runs on a fork. The rows that it changes there, less what the blueprint calls free,
are the wanted effect; its answer is the wanted answer. Ids of new rows, times that a service sets
and wording are free. Any other row that changed is collateral damage. Reading is always free. What
events change is no change of the agent (`change_log.py`); rows that events made have names, since
their ids depend on what else happened. When changes must be made is judged apart (`windows.py`).
Documents of office programs are compared by what they say (`office_formats.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from palaestra.environments.families.apps.compiler.blueprint import Column, qualified
from palaestra.environments.families.apps.composing.goal import Call, Steps
from palaestra.environments.families.apps.composing.policy import Clause
from palaestra.environments.families.apps.composing.windows import Window
from palaestra.environments.families.apps.office_formats import meaning
from palaestra.environments.families.apps.state import Change
from palaestra.environments.families.apps.world import World

VERSION = 3
"""Rises when the same episode may get another verdict; it is the version of the environment, too.

1: what texts must mention could stand in any of them. 2: each stands where the reference has it.
3: when a change was merged into a file of the repository could matter; it is free.
"""
Canonical = tuple[Any, ...]
"""A change without what is free; equal where two changes are the same for a verdict."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one right way of doing a task leaves behind."""

    rows: Counter[Canonical]
    answer: Any = None  # None: any, or none
    mentions: tuple[str, ...] = ()  # what new texts of free wording must mention
    windows: tuple[Window, ...] = ()  # when changes must be made
    passing: frozenset[Canonical] = frozenset()
    """Rows that it made and deleted on its way, such as those of a cart; they cost no progress."""
    said: Counter[tuple[Canonical, frozenset[str]]] = field(default_factory=Counter)
    """Which of them stand in which row."""
    policy: tuple[Clause, ...] = ()  # rules about the calls


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a task was done, part by part."""

    effect: bool  # all wanted rows are there
    wording: bool  # new texts mention what they must
    answer: bool  # the answer is right, or none is wanted
    collateral: tuple[str, ...] = ()  # other rows that changed, such as "delete mail.message 7"
    progress: float = 0.0
    """The share done, less the collateral rows, in [0, 1]: of wanted rows, answer, and the end."""

    timing: bool = True  # nothing was done too early or too late
    policy: tuple[str, ...] = ()  # names of rules about the order of calls that were broken

    @property
    def success(self) -> bool:
        done = self.effect and self.wording and self.answer and self.timing
        return done and not self.collateral and not self.policy


@dataclass(slots=True)
class Ran:
    """What a reference did."""

    calls: list[Call] = field(default_factory=list)
    answer: Any = None
    refused: str = ""  # the error of the call at which it stopped
    made: dict[tuple[str, int], Change] = field(default_factory=dict)  # rows, also if deleted later


def run(steps: Steps, world: World, person: int) -> Ran:
    """Run a reference in a world, until its end or its first call that is refused."""
    ran = Ran()
    try:
        step = next(steps)
        while True:
            ran.calls.append(step)
            reply = world.call(step.api, step.arguments, person)
            if not reply.ok:
                ran.refused = f"{step.api}: {reply}"
                steps.close()
                return ran
            if world.suite.apis[step.api].changes:
                for one in world.state.changes():
                    if one.kind == "insert":
                        ran.made.setdefault((one.table, one.id), one)
            step = steps.send(reply.body)
    except StopIteration as end:
        ran.answer = end.value
    except (IndexError, KeyError) as error:  # what it looked for is not there
        ran.refused = f"{type(error).__name__}: {error}"
    return ran


class Judge:
    """Compares changes with what is wanted, by what the columns of a world hold."""

    def __init__(
        self,
        columns: Mapping[str, Mapping[str, Column]],
        event_rows: Mapping[tuple[str, int], str] = MappingProxyType({}),
    ) -> None:
        """Compare in a world with these tables.

        Args:
            columns: of each table, as `State` and `SiteWorld` have them.
            event_rows: the rows that events made, see `State.event_rows`.
        """
        self.columns, self.event_rows = columns, event_rows

    def canonical(self, changes: Sequence[Change]) -> list[Canonical]:
        """Return each change without what is free, in their order."""
        new = {(one.table, one.id): one for one in changes if one.kind == "insert"}
        return [self._canonical(change, new) for change in changes]

    def wanted(
        self,
        changes: Sequence[Change],
        ran: Ran,
        mentions: Iterable[str],
        windows: Iterable[Window] = (),
        policy: Iterable[Clause] = (),
    ) -> Wanted:
        """Return what a reference that made these changes shows to be wanted."""
        left = {(one.table, one.id) for one in changes}
        gone = [one for key, one in ran.made.items() if key not in left]
        passing = frozenset(self.canonical(gone))
        rows, asked = self.canonical(changes), tuple(mentions)
        said = self._said(changes, rows, asked)
        when, rules = tuple(windows), tuple(policy)
        return Wanted(Counter(rows), ran.answer, asked, when, passing, said, rules)

    def verdict(
        self,
        changes: Sequence[Change],
        answer: str | None,
        ways: Sequence[Wanted],
        timing: bool = True,
        broken: Sequence[str] = (),
    ) -> Verdict:
        """Return the best verdict over all right ways.

        Args:
            changes: what differs from the world's beginning.
            answer: what the agent said at the end; None before the end.
            ways: at least one.
            timing: whether the changes were made when they should be.
            broken: the rules of a policy that were broken.
        """
        found = self.canonical(changes)
        verdicts = [self._verdict(changes, found, answer, way, timing, broken) for way in ways]
        return max(verdicts, key=lambda one: (one.success, one.progress, one.effect))

    # ── details ──────────────────────────────────────────────────────────────

    def _verdict(
        self,
        changes: Sequence[Change],
        found: Sequence[Canonical],
        answer: str | None,
        way: Wanted,
        timing: bool,
        broken: Sequence[str],
    ) -> Verdict:
        left, collateral, passing = Counter(way.rows), list[str](), 0
        for change, one in zip(changes, found, strict=True):
            if left[one] > 0:
                left[one] -= 1
            else:
                collateral.append(f"{change.kind} {change.table} {change.id}")
                passing += one in way.passing
        effect, answered = not left.total(), same_answer(answer, way.answer)
        # Also what the reference itself nowhere mentions is missing: the gate shall notice.
        known = frozenset[str]().union(*(said for _, said in way.said))
        wording = known.issuperset(way.mentions)
        wording = wording and way.said <= self._said(changes, found, way.mentions)
        asked = way.answer is not None
        right = effect and answered and wording and timing and not collateral and not broken
        ended = answer is not None and right
        done = way.rows.total() - left.total() + (asked and answered) + ended
        done -= len(collateral) - passing
        share = done / (way.rows.total() + asked + 1)
        progress = min(1.0, max(0.0, share))
        rows, rules = tuple(collateral), tuple(broken)
        return Verdict(effect, wording, answered, rows, progress, timing, rules)

    def _canonical(self, change: Change, new: Mapping[tuple[str, int], Change]) -> Canonical:
        """Return a change without free columns; new rows that it refers to stand for their ids."""
        values: list[tuple[str, Any]] = []
        for name, value in sorted(change.values.items()):
            if name == "id" or (column := self._column(change.table, name)) is None:
                continue
            if _is_free(column):
                continue
            if column.type == "document":
                value = meaning(value)
            target = qualified(change.table.partition(".")[0], column.refers)
            if column.refers and (target, value) in new:
                others = {key: one for key, one in new.items() if key != (target, value)}
                values.append((name, self._canonical(new[target, value], others)))
            elif column.refers and (target, value) in self.event_rows:
                values.append((name, self.event_rows[target, value]))
            else:
                values.append((name, _plain(value)))
        id: int | str = 0 if change.kind == "insert" else change.id
        id = self.event_rows.get((change.table, change.id), id)
        return (change.table, change.kind, id, tuple(values))

    def _column(self, table: str, name: str) -> Column | None:
        return self.columns[table].get(name)

    def _said(
        self, changes: Sequence[Change], found: Sequence[Canonical], mentions: Sequence[str]
    ) -> Counter[tuple[Canonical, frozenset[str]]]:
        """Count the rows by what their new texts of free wording mention, of all but nothing."""
        pairs = []
        for change, row in zip(changes, found, strict=True):
            texts = " ".join(
                value
                for name, value in change.values.items()
                if name != "id" and isinstance(value, str)
                if (column := self._column(change.table, name)) is not None and column.free
            )
            if said := frozenset(one for one in mentions if _mentions(texts, one)):
                pairs.append((row, said))
        return Counter(pairs)


NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def written(value: Any) -> str:
    """Return a value as people write it: 12.5 as 12.50, and 25.0 as 25."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:.2f}".removesuffix(".00")
    return str(value)


def _mentions(texts: str, mention: str) -> bool:
    """Return whether texts mention something: its words, or a number with any zeros at its end."""
    if NUMBER.fullmatch(mention):
        found = NUMBER.findall(re.sub(r"(?<=\d),(?=\d{3})", "", texts))
        return float(mention) in map(float, found)
    return _plain(mention) in _plain(texts)


def _is_free(column: Column) -> bool:
    return column.free or (column.by == "service" and column.type in ("time", "date"))


def _plain(value: Any) -> Any:
    """Return a value so that equal ones compare equal: 25 and 25.0, and texts by their words."""
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    )


MARKS = " .'\""  # around an answer, which say nothing


def same_answer(given: str | None, wanted: Any) -> bool:
    """Return whether an answer is the wanted one.

    A number is compared as one, a text by its words in any case, a set of texts without an order;
    what is said in its place is separated by commas, semicolons, lines or "and".
    """
    if wanted is None:
        return True
    if given is None:
        return False
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        numbers = re.findall(r"-?\d+(?:\.\d+)?", given.replace(",", ""))
        return len(numbers) == 1 and float(numbers[0]) == float(wanted)
    if isinstance(wanted, frozenset):
        parts = (part.strip(MARKS) for part in re.split(r"[,;\n]|\band\b", given))
        return {_plain(part) for part in parts if part} == {_plain(one) for one in wanted}
    return bool(_plain(given.strip(MARKS)) == _plain(str(wanted).strip(MARKS)))
