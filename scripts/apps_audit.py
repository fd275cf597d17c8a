"""Audit the verdicts of apps and desks: right solutions pass; wrong and constant ones do not.

    python scripts/apps_audit.py 5000 --file FILE            # tasks in all; tables in Markdown
    python scripts/apps_audit.py 300 --only apps/chain,apps/branch
    python scripts/apps_audit.py 300 --print 200             # right solutions, to be read
    python scripts/apps_audit.py 5000 --synthesis FOLDER     # what was made there, too

FILE gets a line for each task, so that a command that was stopped goes on where it was.

For each id of `apps`, `desk`, `office` and `proactive` (the tools do not matter), and of a
synthesis: the expert's solution; constant behaviour; 20 actions by chance; near misses and planted
wrong solutions; and other right solutions. Where rules may forbid what is asked, a last table has
what behaviour that ignores them passes. Every wrong solution that is accepted and every right one
that is rejected is printed.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import audited_compositions
import audited_conversations
from audit_record import Record, RecordFile, by_goal, by_id, ignoring_rules, share

from palaestra.core.task import Split, Task
from palaestra.environments.families.apps.composing.composition import LEVELS, Composer
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.operators import EXPERT
from palaestra.environments.families.apps.drawing import CHALLENGE, UNSEEN, drawn
from palaestra.environments.families.apps.environment import COMPOSED, Apps, speed_of
from palaestra.environments.families.apps.population import START
from palaestra.environments.families.apps.scenarios import candidates
from palaestra.environments.families.apps.setting import core_atoms
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.desk.environment import USERS, Desk
from palaestra.environments.families.office.environment import LEVEL_NAMES
from palaestra.environments.families.proactive.environment import Proactive
from palaestra.environments.families.synthesised.procedure_tasks import Procedures
from palaestra.environments.registry import make, tasks

EXPERTS = 250  # of so many tasks of other ids there is one of an expert's: each takes seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tasks", type=int, help="in all")
    parser.add_argument("--only", default="", help="ids, separated by commas")
    parser.add_argument("--file", type=Path, default=Path("runs/apps_audit.jsonl"))
    parser.add_argument("--synthesis", default="", help="a folder with tasks and procedures")
    parser.add_argument("--draws", type=int, default=0, help="worlds for the gate's yield")
    parser.add_argument("--print", type=int, default=0, dest="shown", help="right solutions")
    options = parser.parse_args()
    ids = known_ids(options.synthesis)
    unknown = sorted({*options.only.split(",")} - {"", *ids})
    if unknown:
        parser.error(f"--only: '{unknown[0]}' is unknown; choose from {', '.join(ids)}")
    ids = options.only.split(",") if options.only else ids
    file, shown = RecordFile(options.file), list[str]()
    for id, number in dealt(ids, options.tasks):
        if not file.has(id, number):
            record = audit(id, number, shown)
            for line in record.found:
                print(id, line, flush=True)
            file.add(record)
    print(by_id(file.records), by_goal(file.records), sep="\n")
    print(ignoring_rules(file.records))
    if options.draws:
        print(yields(ids, options.draws))
    for text in random.Random(0).sample(shown, min(options.shown, len(shown))):
        print(text)


def known_ids(synthesis: str) -> list[str]:
    """Return the ids that are audited: those with other tools, speeds or users have equal tasks."""
    apps = [name for name in Apps.names() if ":" not in name and speed_of(name) is None]
    desks = [name for name in Desk.names() if not name.endswith(USERS)]
    made = [f"{family}/{synthesis}" for family in ("synthesised", "procedures") if synthesis]
    proactive = [f"proactive/{name}" for name in Proactive.names()]
    office = [f"office/{name}" for name in LEVEL_NAMES]
    others = [*office, *proactive, *made]
    return [*(f"apps/{n}" for n in apps), *(f"desk/{n}" for n in desks), *others]


def dealt(ids: Sequence[str], count: int) -> Iterator[tuple[str, int]]:
    """Yield ids and numbers of tasks: equally many of each id, and fewer of experts' tasks."""
    counts = Counter[str]()
    for number in range(count):
        left = [id for id in ids if counts[id] < task_count(id)]
        experts = [id for id in left if id.startswith(f"apps/{EXPERT}")]
        others = [id for id in left if id not in experts]
        of = experts if experts and (not others or number % EXPERTS == 0) else others
        if not of:
            return
        id = min(of, key=lambda one: counts[one])
        yield id, counts[id]
        counts[id] += 1


@cache
def task_count(id: str) -> float:
    """Return how many tasks an id has in all splits."""
    counts = [tasks(id).count(split) for split in Split]
    return sum(count for count in counts if count is not None) or float("inf")


def task_of(id: str, number: int) -> Task:
    """Return a task: through all splits, and through worlds."""
    if task_count(id) == float("inf"):
        return Task(f"audit/{number}", id, number)
    every = (
        tasks(id).task(split, n) for split in Split for n in range(tasks(id).count(split) or 0)
    )
    return [*every][number]


def audit(id: str, number: int, shown: list[str]) -> Record:
    """Return what was found out about a task; texts of right solutions are added to `shown`."""
    record, task = Record(id, number, []), task_of(id, number)
    with closing(make(id)) as env:
        if isinstance(env, Apps):
            audited_compositions.audited(env, task, record, shown)
        else:
            assert isinstance(env, Desk | Proactive | Procedures)
            pair, split = divmod(number, len(Split))
            other = (pair ^ 1) * len(Split) + split
            twin = None if isinstance(env, Procedures) else task_of(id, other)
            audited_conversations.audited(env, task, twin, record)
    return record


def yields(ids: Sequence[str], worlds: int) -> str:
    """Return how many draws pass the gate, and why others do not, by id."""
    lines = ["| id | draws | pass the gate | reasons of the others |", "|---|---|---|---|"]
    for id in ids:
        level, _, kind = id.removeprefix("apps/").partition("-")
        if level == EXPERT or level not in COMPOSED:
            continue  # drawn goal by goal, or in other apps
        reasons = Counter(_reasons(level, kind, worlds))
        draws, passed = reasons.total(), reasons.pop("", 0)
        most = "; ".join(f"{reason}: {number}" for reason, number in reasons.most_common(4))
        lines.append(f"| {id} | {draws} | {share(passed, draws)} | {most} |")
    return "\n".join(lines) + "\n"


def _reasons(level: str, kind: str, worlds: int) -> Iterator[str]:
    """Yield why draws do not pass the gate; nothing for one that does."""
    for number in range(worlds):
        seed = len(Split) * number
        if level not in LEVELS:
            yield from (_short(reason) for reason in candidates(level, kind, seed, 5))
            continue
        made = drawn(level, kind, seed)
        atoms = [a for a in core_atoms(made.suite) if (UNSEEN in a.apps) == (kind == CHALLENGE)]
        composer = Composer(atoms)
        rng = random.Random(number)
        with closing(World(made.suite, made.template, START)) as world:
            for _ in range(5):
                task = composer.draw(world, LEVELS[level], rng)
                yield _short("no values" if task is None else rejection(world, task, rng))


def _short(reason: str | None) -> str:
    return (reason or "").partition(": {")[0]


if __name__ == "__main__":
    main()
