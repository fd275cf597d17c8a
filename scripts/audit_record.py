"""What an audit found out about one task, a file of such records, and tables of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from palaestra.evaluation.statistics.intervals import wilson

ENOUGH = 20  # wrong solutions planted of each kind of goal


@dataclass
class Record:
    """What was tried on one task."""

    id: str
    number: int  # of the task, among those of the id
    goals: list[str]  # kinds of goals to which what was tried belongs; none of composed tasks
    twin: bool = False  # a constant behaviour solves it or its twin
    calls: int = 0  # of the reference
    solved: bool = False  # by the reference
    constant: bool = False  # some constant behaviour solves it
    chance: bool = False  # 20 calls by chance solve it
    wrong: int = 0
    rejected: int = 0
    right: int = 0
    accepted: int = 0
    ignoring: dict[str, bool] = field(default_factory=dict)  # what ignores rules, and if it passes
    found: list[str] = field(default_factory=list)  # wrong verdicts, in words

    def try_wrong(self, label: str, success: bool) -> None:
        """Count a wrong solution."""
        self.wrong += 1
        self.rejected += not success
        if success:
            self.found.append(f"ACCEPTED {label}")

    def try_right(self, label: str, success: bool) -> None:
        """Count a right solution."""
        self.right += 1
        self.accepted += success
        if not success:
            self.found.append(f"REJECTED {label}")


class RecordFile:
    """A file with a line for each task that was audited; what is in it is not audited again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):  # a kill came in between
            path.write_text("".join(lines := lines[:-1]))
        self.records = [Record(**json.loads(line)) for line in lines]
        self._known = {(one.id, one.number) for one in self.records}

    def has(self, id: str, number: int) -> bool:
        """Return whether a task was audited."""
        return (id, number) in self._known

    def add(self, record: Record) -> None:
        """Keep what was found out about a task."""
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")
        self.records.append(record)
        self._known.add((record.id, record.number))


def by_id(records: Sequence[Record]) -> str:
    """Return a table with a row for each id, twins apart, and one for all."""
    rows: dict[str, list[Record]] = {}
    for one in records:
        rows.setdefault(f"{one.id} (twins)" if one.twin else one.id, []).append(one)
    rows["all but twins"] = [one for one in records if not one.twin]
    rows["all"] = list(records)
    return _table("id", rows)


def by_goal(records: Iterable[Record]) -> str:
    """Return a table with a row for each kind of goal, and which kinds had too few solutions."""
    rows: dict[str, list[Record]] = {}
    for one in records:
        for goal in one.goals:
            rows.setdefault(goal, []).append(one)
    few = [name for name, found in sorted(rows.items()) if sum(r.wrong for r in found) < ENOUGH]
    told = f"Fewer than {ENOUGH} wrong solutions: {', '.join(few) or 'none'}."
    return f"{_table('goal', dict(sorted(rows.items())))}\n{told}\n"


def ignoring_rules(records: Iterable[Record]) -> str:
    """Return a table of behaviour that ignores rules; empty if it was not tried."""
    tried: dict[str, list[bool]] = {}
    for one in records:
        for behaviour, success in one.ignoring.items():
            tried.setdefault(behaviour, []).append(success)
    lines = ["| behaviour | tasks | solved |", "|---|---|---|"]
    for name, solved in tried.items():
        share = wilson(sum(solved), len(solved))
        bounds = f"{share.low:.2f} to {share.high:.2f}"
        lines.append(f"| {name} | {len(solved)} | {share.mean:.2f} ({bounds}) |")
    return "\n".join(lines) + "\n" if tried else ""


def _table(head: str, rows: dict[str, list[Record]]) -> str:
    lines = [
        f"| {head} | tasks | calls | reference | constant | chance | wrong planted | rejected | "
        "other right | accepted |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        calls = [one.calls for one in found]
        wrong, right = sum(one.wrong for one in found), sum(one.right for one in found)
        if found:
            lines.append(
                f"| {name} | {len(found)} | {min(calls)}-{max(calls)} "
                f"| {share(sum(one.solved for one in found), len(found))} "
                f"| {sum(one.constant for one in found)} | {sum(one.chance for one in found)} "
                f"| {wrong} | {share(sum(one.rejected for one in found), wrong)} "
                f"| {right} | {share(sum(one.accepted for one in found), right)} |"
            )
    return "\n".join(lines) + "\n"


def share(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{part / whole:.2%}" if whole else "-"
